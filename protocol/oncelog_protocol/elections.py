"""The kinds of elections that a client may request (KIP-460)."""

from __future__ import annotations

from enum import IntEnum


class ElectionType(IntEnum):
    """The election type in ElectLeaders."""

    PREFERRED = 0
    """Elect the preferred replica, the first replica in the partition's assignment."""
    UNCLEAN = 1
    """Unclean election: if no in-sync replica is alive, elect a replica that may lack records."""
