"""The events of a history. `at` and similar fields are steps of the history's own clock, which only orders events.

Each written record must have a unique value, by which it is recognised in every log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

__tracebackhide__ = True  # where a test fails, pytest shows the lines of the test and not ours

NOT_YET = -1
"""The time of an event that has not happened, and an unknown offset."""


ANY_PARTITION = -1


class Place(NamedTuple):
    """A partition. ANY_PARTITION: chosen by the producer, and not yet known."""

    topic: str
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which is not needed here

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


class Outcome(Enum):
    """The client's knowledge about the outcome of its request."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    """It was certainly not done, and never will be. A timeout is UNKNOWN instead."""
    UNKNOWN = "unknown"


class End(Enum):
    """How a transaction ended, as its producer knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """It never ended, or the response to its end was lost: all of it may be visible, or nothing."""


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
    """A record that was given to a producer. The records of one producer are noted in the order of its sends."""

    producer: str
    place: Place
    value: bytes
    transaction: Transaction | None = None
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = NOT_YET
    """The acknowledged offset."""
    made_of: Input | None = None
    """The input of this output: each input must have exactly one output in the end, from any producer."""


class Input(NamedTuple):
    """A record that a group must process exactly once."""

    group: str
    place: Place
    offset: int


@dataclass(slots=True, eq=False)
class Reading:
    """The records that one consumer got from one partition after one seek, in order."""

    consumer: str
    place: Place
    is_committed: bool
    """Whether the isolation level was read_committed."""
    records: list[tuple[int, bytes]] = field(default_factory=list)
    """Offset and value."""


@dataclass(slots=True, eq=False)
class Commit:
    """A commit of a group's offset. Members only commit forwards, as far as they know; a reset may set any offset."""

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
    """A committed offset that was fetched; -1 if there is none."""

    group: str
    place: Place
    offset: int
    asked: int
    answered: int


class StoredBatch(NamedTuple):
    base_offset: int
    next_offset: int
    content: bytes
    """All bytes of the record, or a digest of them."""


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """The log of one replica, and its high watermark."""

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
    """A broker answered as the leader of this epoch."""

    place: Place
    epoch: int
    broker: int
