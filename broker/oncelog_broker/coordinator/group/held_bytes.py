"""Counts the memory that all groups of a broker use for the metadata of their members, so that this memory can be
limited. Pure.

Each JoinGroup of a member may contain much metadata, which the group stores until the member's session or rebalance
timeout, even after the client has disconnected. Kafka limits only the number of members.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

PROTOCOL_OVERHEAD: Final = 200
"""Bytes of memory that Python needs for a protocol in addition to its name and metadata."""
TOPIC_OVERHEAD: Final = 64
"""Bytes of memory that Python needs for a topic name in a set, in addition to the characters. If this overhead were not
counted, many short names would seem to use almost no memory.
"""


def bytes_of(protocols: Sequence[tuple[str, bytes]]) -> int:
    """Return the bytes of memory of a member with these protocols and their metadata."""
    return sum(PROTOCOL_OVERHEAD + len(name.encode()) + len(metadata) for name, metadata in protocols)


class HeldBytes:
    """The sum of the metadata bytes of all groups; each group updates this sum."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0
