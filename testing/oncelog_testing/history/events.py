"""What a history consists of. `at` and its like are steps of the history's own clock, which only orders events.

Whoever writes gives each record a value of its own: by its value a record is known wherever it turns up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

__tracebackhide__ = True  # where a test fails, pytest shows the lines of the test and not ours

NOT_YET = -1
"""The time of what has not happened, the offset that nobody told."""


ANY_PARTITION = -1


class Place(NamedTuple):
    """A partition. ANY_PARTITION: the one that the producer chooses, as long as nobody knows which."""

    topic: str
    index: int = 0  # type: ignore[assignment]  # a tuple has a method of that name, which nobody asks of a place

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


class Outcome(Enum):
    """What the client knows about something that it asked for."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    """For certain: it was not done, and it never will be. A timeout is not that."""
    UNKNOWN = "unknown"


class End(Enum):
    """How a transaction ended, as its producer knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """Never ended, or the answer to its end is lost: all of it may be there, or nothing."""


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
    """A record that was given to a producer. One producer's are noted in the order in which it was given them."""

    producer: str
    place: Place
    value: bytes
    transaction: Transaction | None = None
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = NOT_YET
    """As it was acknowledged."""
    made_of: Input | None = None
    """Of each input there is to be one output, whoever made it, in the end."""


class Input(NamedTuple):
    """A record that a group has to process exactly once."""

    group: str
    place: Place
    offset: int


@dataclass(slots=True, eq=False)
class Reading:
    """What one consumer got of one partition from one seek on, in the order in which it got it."""

    consumer: str
    place: Place
    is_committed: bool
    """Whether the isolation level was read_committed."""
    records: list[tuple[int, bytes]] = field(default_factory=list)
    """Offset and value."""


@dataclass(slots=True, eq=False)
class Commit:
    """Of the offset of a group. Members commit forwards only, as far as they know; who resets it, anything."""

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
    """A committed offset, as it was asked for; -1: there is none."""

    group: str
    place: Place
    offset: int
    asked: int
    answered: int


class StoredBatch(NamedTuple):
    base_offset: int
    next_offset: int
    content: bytes
    """All its bytes, or a digest of them."""


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """One replica's log, and up to where it knows that all in sync have it."""

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
