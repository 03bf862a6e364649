"""The delivery states of the records of a share partition: ranges of offsets with a delivery state and a delivery
count. Pure.

Kafka's counterpart is PersisterStateBatchCombiner. A batch is a range of offsets with the same delivery state and
count. Batches are ordered by offset and do not overlap. The state of an offset outside all batches is unknown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol


class DeliveryState(IntEnum):
    """The delivery state of a record. The numbers are used in the log and in the protocol."""

    AVAILABLE = 0
    ACQUIRED = 1
    """The record has been delivered to a member and not acknowledged yet. Only the leader of the partition stores this
    state, in memory."""
    ACKNOWLEDGED = 2
    ARCHIVED = 4
    """The record is not delivered again, because it was rejected, was delivered too often, or does not exist."""

    @property
    def is_terminal(self) -> bool:
        return self >= DeliveryState.ACKNOWLEDGED


KEPT_STATES = frozenset({DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})


class StateBatch(NamedTuple):
    """The delivery state of the offsets from `first` to `last`, both included."""

    first: int
    last: int
    state: int
    deliveries: int
    """Number of deliveries of the records."""


class BatchMessage(Protocol):
    """A state batch as a part of any protocol message or log record."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


def batches_of(messages: Iterable[BatchMessage]) -> list[StateBatch]:
    """Return the batches as StateBatch values."""
    return [StateBatch(m.first_offset, m.last_offset, m.delivery_state, m.delivery_count) for m in messages]


def messages_of(cls: type[Any], batches: Iterable[StateBatch]) -> list[Any]:
    """Return the batches as protocol messages or log records of the type `cls`."""
    return [
        cls(first_offset=first, last_offset=last, delivery_state=state, delivery_count=deliveries)
        for first, last, state, deliveries in batches
    ]


def merged(batches: Sequence[StateBatch], updates: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Apply `updates` to `batches`: each update replaces the state of its offsets. Offsets below `start_offset` are
    dropped, and adjacent batches with equal states are joined."""
    known = list(batches)
    for update in updates:
        low = bisect_left(known, update.first, key=lambda batch: batch.last)
        high = low
        pieces = [update]
        while high < len(known) and known[high].first <= update.last:
            high += 1
        if high > low:
            if known[low].first < update.first:
                pieces.insert(0, known[low]._replace(last=update.first - 1))
            if known[high - 1].last > update.last:
                pieces.append(known[high - 1]._replace(first=update.last + 1))
        known[low:high] = pieces
    joined: list[StateBatch] = []
    for batch in known:
        if batch.last < start_offset:
            continue
        if batch.first < start_offset:
            batch = batch._replace(first=start_offset)
        if joined and joined[-1].last + 1 == batch.first and joined[-1][2:] == batch[2:]:
            joined[-1] = joined[-1]._replace(last=batch.last)
        else:
            joined.append(batch)
    return tuple(joined)
