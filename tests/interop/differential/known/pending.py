"""What work under way is about to change; to be emptied with it. Until then nobody asks whether it still shows itself.

GOING are defects; when they are mended their entries are taken out. COMING are entries of rows of docs/differences.md
that are not true yet; when they are, they move to their area. Both have `seen_in` NOWHERE while they wait here.
"""

from __future__ import annotations

from typing import Final

from tests.interop.differential.register import Known

GOING: Final[tuple[Known, ...]] = ()
COMING: Final[tuple[Known, ...]] = ()

PENDING: Final = (*GOING, *COMING)
