"""What is known of the records of a share partition: batches of offsets with a delivery state and a count. Pure.

Source: Kafka's PersisterStateBatchCombiner. A batch is a range of offsets that are alike. Batches are in the order of
their offsets and do not overlap; offsets in no batch are not known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol


class DeliveryState(IntEnum):
    """The state of records. The numbers stand in the log and on the wire."""

    AVAILABLE = 0
    ACQUIRED = 1
    """A member has the record: known to the leader of the partition alone, and never kept."""
    ACKNOWLEDGED = 2
    ARCHIVED = 4
    """The record is not delivered again: rejected, delivered too often, or no record."""

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
    """How often the records were delivered."""


class BatchMessage(Protocol):
    """A state batch in any message or record."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


def batches_of(messages: Iterable[BatchMessage]) -> list[StateBatch]:
    """The batches in a message or record."""
    return [StateBatch(m.first_offset, m.last_offset, m.delivery_state, m.delivery_count) for m in messages]


def messages_of(cls: type[Any], batches: Iterable[StateBatch]) -> list[Any]:
    """The batches as messages of type `cls`."""
    return [
        cls(first_offset=first, last_offset=last, delivery_state=state, delivery_count=deliveries)
        for first, last, state, deliveries in batches
    ]


def merged(batches: Sequence[StateBatch], updates: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """`batches` after `updates`, each of which replaces the state of its offsets; offsets below `start_offset` are
    dropped. Equal neighbours are joined."""
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
