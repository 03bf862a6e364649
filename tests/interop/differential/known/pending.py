"""Differences that present work will change; to be emptied with it. Until then no check requires them to appear.

GOING are defects; their entries are removed when they are fixed. COMING are entries of rows of docs/differences.md that
are not true yet; when they are, they move to their area. Both have `seen_in` NOWHERE while they wait here.
"""

from __future__ import annotations

from typing import Final

from tests.interop.differential.register import Known

GOING: Final[tuple[Known, ...]] = ()
COMING: Final[tuple[Known, ...]] = ()

PENDING: Final = (*GOING, *COMING)
