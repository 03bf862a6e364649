"""Traffic counters of one topic on this broker: plain integers without locks, which the hot path increments.

The counters never decrease. When this broker no longer hosts a partition, the partition's counters are added to the
topic's counters (`fold`). When a topic is deleted, its counters are added to the broker's totals (`add`).
"""

from __future__ import annotations

from typing import Protocol


class Refusals(Protocol):
    """Interface of an object with the numbers of duplicates and gaps in one log, such as `ProducerCounters`."""

    duplicates: int
    old_duplicates: int
    gaps: int


class TopicTraffic:
    """The traffic of one topic; sizes are in bytes."""

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
        """The number of messages that were produced in past leader epochs; the messages of the present epoch are
        counted by their offsets.
        """
        self.bytes_in = 0
        self.bytes_out = 0
        self.produces = 0
        """The number of produced batches; a request has one batch for each of its partitions."""
        self.failed_produces = 0
        self.fetches = 0
        """The number of partitions in Fetch responses to consumers."""
        self.failed_fetches = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.fenced = 0
        """The number of batches that were refused because their producer is fenced."""
        # The following counters contain the counts of logs that this broker no longer hosts.
        self.duplicates = 0
        self.old_duplicates = 0
        self.gaps = 0

    @property
    def has_counted(self) -> bool:
        """Whether any counter is above 0."""
        return any(getattr(self, name) for name in self.__slots__)

    def fold(self, refusals: Refusals) -> None:
        """Add the counters of a log that is no longer hosted."""
        self.duplicates += refusals.duplicates
        self.old_duplicates += refusals.old_duplicates
        self.gaps += refusals.gaps

    def add(self, other: TopicTraffic) -> None:
        """Add the counters of `other`."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def move_to(self, other: TopicTraffic) -> None:
        """Move all counts to `other`, because the topic is deleted; afterwards they are 0 here."""
        other.add(self)
        for name in self.__slots__:
            setattr(self, name, 0)
