"""All known differences, by area."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.known import everywhere
from tests.interop.differential.register import Known

KNOWN: Final[tuple[Known, ...]] = (*everywhere.KNOWN,)
