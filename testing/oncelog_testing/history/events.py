"""The events in a history. `at` and similar fields are times of the history's own clock; this clock counts events, so
its times show only the order of events.

Each written record must have a unique value, by which the checks recognise it in every log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

__tracebackhide__ = True  # hides this module in the traceback of a failed test

NOT_YET = -1
"""Placeholder for the time of an event that has not happened, and for an unknown offset."""


ANY_PARTITION = -1


class Place(NamedTuple):
    """A partition of a topic. The index ANY_PARTITION means that the producer chooses the partition and the test does
    not know its choice yet.
    """

    topic: str
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which is not needed here

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


class Outcome(Enum):
    """What the client knows about the outcome of its request."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    """The request was certainly not executed, and never will be. A timeout counts as UNKNOWN instead."""
    UNKNOWN = "unknown"


class End(Enum):
    """How a transaction ended, as its producer knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """The producer never ended the transaction, or the response to its commit or abort was lost. Either all records of
    the transaction are visible, or none.
    """


@dataclass(slots=True, eq=False)
class Transaction:
    producer: str
    number: int
    end: End = End.UNKNOWN
    ended: int = NOT_YET

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.producer} ({self.end.value})"


@dataclass(slots=True, eq=False)
class Send:
    """A record that was passed to a producer. The sends of one producer are recorded in their order."""

    producer: str
    place: Place
    value: bytes
    transaction: Transaction | None = None
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = NOT_YET
    """The offset of the record in the response that acknowledged it."""
    made_of: Input | None = None
    """The input record from which an application made this record; at the end, each input must have exactly one output,
    whichever producer has sent it.
    """


class Input(NamedTuple):
    """A record that a group must process exactly once."""

    group: str
    place: Place
    offset: int


@dataclass(slots=True, eq=False)
class Reading:
    """The records that one consumer got from one partition since it began to read or last called seek, in order."""

    consumer: str
    place: Place
    is_committed: bool
    """Whether the isolation level was read_committed."""
    records: list[tuple[int, bytes]] = field(default_factory=list)
    """The records that were read, as pairs of offset and value."""


@dataclass(slots=True, eq=False)
class Commit:
    """A commit of a group's offset. Each member commits only increasing offsets, unless it does not know of another
    member's commit; a reset may set any offset.
    """

    group: str
    place: Place
    offset: int
    asked: int
    transaction: Transaction | None = None
    outcome: Outcome = Outcome.UNKNOWN
    answered: int = NOT_YET
    is_reset: bool = False


@dataclass(slots=True, eq=False)
class OffsetRead:
    """A committed offset that a client has fetched; -1 if the group had no committed offset."""

    group: str
    place: Place
    offset: int
    asked: int
    answered: int


@dataclass(slots=True, eq=False)
class Delivery:
    """A record that a member of a share group has got; the record counts as accepted when `outcome` is ACKNOWLEDGED."""

    group: str
    member: str
    place: Place
    offset: int
    count: int
    """The number of deliveries of the record, including this one, as the broker has told the member."""
    received: int
    accepted: int = NOT_YET
    """When the member sent its acceptance."""
    outcome: Outcome = Outcome.UNKNOWN
    answered: int = NOT_YET


class StoredBatch(NamedTuple):
    base_offset: int
    next_offset: int
    content: bytes
    """All bytes of the record, or a digest of them."""


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """The log of one replica, with its high watermark."""

    broker: int
    place: Place
    high_watermark: int
    batches: tuple[StoredBatch, ...]

    @property
    def start(self) -> int:
        return self.batches[0].base_offset if self.batches else 0

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0


class Led(NamedTuple):
    """An observation: a broker responded as the leader in this epoch."""

    place: Place
    epoch: int
    broker: int
