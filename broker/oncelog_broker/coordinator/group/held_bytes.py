"""Bounds the memory that all groups of a broker use for the metadata of their members. Pure.

Each JoinGroup of a member may carry much metadata, which its group keeps as long as its session and rebalance timeouts
allow, even without a connection. Kafka bounds the number of members alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

PROTOCOL_OVERHEAD: Final = 200
"""Bytes that Python needs for a protocol in addition to its name and metadata."""
TOPIC_OVERHEAD: Final = 64
"""Bytes that Python needs for a topic name in a set, in addition to its characters: without it, short names would be
free."""


def bytes_of(protocols: Sequence[tuple[str, bytes]]) -> int:
    """Bytes of a member with these protocols and their metadata."""
    return sum(PROTOCOL_OVERHEAD + len(name.encode()) + len(metadata) for name, metadata in protocols)


class HeldBytes:
    """A sum that groups keep up to date."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0
