"""How much memory the members of all groups of a broker take with what they say of themselves. Pure.

Each member may say much, in each JoinGroup anew, and its group keeps it whether or not its connection lives, for as
long as its session and its rebalance timeout allow. Kafka bounds the number of members alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

PROTOCOL_OVERHEAD: Final = 200
"""What Python takes for a protocol beside its name and metadata."""
TOPIC_OVERHEAD: Final = 64
"""What Python takes for the name of a topic in a set, beside its bytes: names of three letters would be free else."""


def bytes_of(protocols: Sequence[tuple[str, bytes]]) -> int:
    """What a member takes that can follow these protocols, each with its metadata."""
    return sum(PROTOCOL_OVERHEAD + len(name.encode()) + len(metadata) for name, metadata in protocols)


class HeldBytes:
    """A sum that groups keep up to date."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0
