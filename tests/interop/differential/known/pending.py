"""Differences that unfinished work will change; when the work is complete, these lists must be empty. The check that
every known difference appears does not cover these lists.

The entries of GOING are defects; an entry is removed when its defect is fixed. The entries of COMING belong to rows of
docs/differences.md that are not true yet. When a row becomes true, its entries move to the module of their area. The
`seen_in` of each entry in this module is NOWHERE.
"""

from __future__ import annotations

from typing import Final

from tests.interop.differential.register import Known

GOING: Final[tuple[Known, ...]] = ()
COMING: Final[tuple[Known, ...]] = ()

PENDING: Final = (*GOING, *COMING)
