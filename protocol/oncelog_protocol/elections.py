"""The kinds of elections that a client may ask for (KIP-460)."""

from __future__ import annotations

from enum import IntEnum


class ElectionType(IntEnum):
    """What ElectLeaders carries."""

    PREFERRED = 0
    """The first replica of the assignment leads."""
    UNCLEAN = 1
    """Where nobody in sync is left, one leads that may lack records."""
