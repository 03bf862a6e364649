"""Fetches that wait for data: they hang on their partitions and wake on an append or at their deadline.

A waiting fetch counts down the bytes it still misses; each advance of a high watermark (of the last stable offset, for
read_committed) subtracts what became readable.
So an append costs one subtraction per waiting fetch, and the partitions are read once, when the fetch completes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


class Readable(Protocol):
    """A partition, as far as those who wait for its records need it."""

    waiting_fetches: set[DelayedFetch]


class DelayedFetch:
    """One waiting fetch. `complete` runs once: when enough bytes came, when something changed, or at the deadline."""

    __slots__ = ("_complete", "_missing_bytes", "_partitions", "read_committed")

    def __init__(
        self,
        partitions: Sequence[Readable],
        missing_bytes: int,
        complete: Callable[[], None],
        *,
        read_committed: bool = False,
    ) -> None:
        """`missing_bytes`: how many more bytes the fetch waits for, at least 1."""
        self.read_committed = read_committed
        """Whether it reads up to the last stable offset only, so that it waits for that one to advance."""
        self._partitions = partitions
        self._missing_bytes = missing_bytes
        self._complete: Callable[[], None] | None = complete
        for partition in partitions:
            partition.waiting_fetches.add(self)

    def on_readable(self, new_bytes: int) -> None:
        """`new_bytes` more can be read from one of the partitions."""
        self._missing_bytes -= new_bytes
        if self._missing_bytes <= 0:
            self.finish()

    def finish(self) -> None:
        """Answer now; harmless when that has happened already (a late deadline)."""
        complete, self._complete = self._complete, None
        if complete is None:
            return
        for partition in self._partitions:
            partition.waiting_fetches.discard(self)
        complete()
