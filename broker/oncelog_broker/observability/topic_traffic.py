"""What came in and went out of one topic on this broker: plain integers that the hot path adds to and nobody locks.

They only grow, as counters must: what a partition has counted by itself is folded in when it goes (`fold`), and what a
topic that is deleted has counted stays in the broker's totals (`add`).
"""

from __future__ import annotations

from typing import Protocol


class Refusals(Protocol):
    """What one log has refused or answered again (`ProducerCounters` is one)."""

    duplicates: int
    old_duplicates: int
    gaps: int


class TopicTraffic:
    """The counters of one topic; sizes in bytes."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "duplicates",
        "failed_fetches",
        "failed_produces",
        "fenced",
        "fetches",
        "gaps",
        "isr_expands",
        "isr_shrinks",
        "messages_in",
        "old_duplicates",
        "produces",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        """Of leader epochs that are over; of the present ones the offsets say it."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.produces = 0
        """Batches, as each partition of a request is one."""
        self.failed_produces = 0
        self.fetches = 0
        """Partitions in answers to consumers."""
        self.failed_fetches = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.fenced = 0
        """Batches of producers that others have replaced."""
        # Of logs that are hosted no more:
        self.duplicates = 0
        self.old_duplicates = 0
        self.gaps = 0

    @property
    def has_counted(self) -> bool:
        """Whether anything has been counted."""
        return any(getattr(self, name) for name in self.__slots__)

    def fold(self, refusals: Refusals) -> None:
        """A log is hosted no more."""
        self.duplicates += refusals.duplicates
        self.old_duplicates += refusals.old_duplicates
        self.gaps += refusals.gaps

    def add(self, other: TopicTraffic) -> None:
        """Count what `other` has counted."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def move_to(self, other: TopicTraffic) -> None:
        """Have `other` count all this from now on: the topic is gone."""
        other.add(self)
        for name in self.__slots__:
            setattr(self, name, 0)
