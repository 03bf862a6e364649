"""Differences that present work will change; the work must also empty these lists. Until then no check requires that
these differences appear.

The entries of GOING are defects; an entry is removed when its defect is fixed. The entries of COMING belong to rows of
docs/differences.md that are not true yet; when a row becomes true, its entries move to their area. While an entry waits
here, its `seen_in` is NOWHERE.
"""

from __future__ import annotations

from typing import Final

from tests.interop.differential.register import Known

GOING: Final[tuple[Known, ...]] = ()
COMING: Final[tuple[Known, ...]] = ()

PENDING: Final = (*GOING, *COMING)
