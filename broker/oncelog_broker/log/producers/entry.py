"""The state of one producer id in a log. Pure.

It is an immutable `bytes`, an *entry*, so that 100,000 of them are one dictionary that the garbage collector skips, and
an image of all is a list of references:

            46 bytes   as in Kafka's snapshot (S55): producer id, epoch, last sequence, last offset, offset delta,
                       timestamp, coordinator epoch, first offset of the open transaction or -1
             4         how many sequences up to the last one are known to be in the log, in this epoch and since its
                       newest transaction began; without a last sequence, 0 if no batch came in this epoch (the next
                       sequence is 0), ANY_SEQUENCE if that is unknown
             8         timestamp of the newest batch (the one above may be a marker's)
        0..4 x 24      the batches before that, newest first: last sequence, last offset, offset delta, timestamp

A producer that is writing has an entry and a `BatchStreak`: the batches since the entry, one after another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from oncelog_broker.log.header_fields import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    LAST_OFFSET_DELTA,
    PRODUCER_EPOCH,
    HeaderFields,
)
from oncelog_protocol.records.batch import NO_SEQUENCE, NO_TIMESTAMP, TRANSACTIONAL_BIT
from oncelog_protocol.records.sequence import decrement_sequence, increment_sequence

NO_OFFSET: Final = -1
NO_COORDINATOR_EPOCH: Final = -1

SNAPSHOT_ENTRY: Final = Struct(">qhiqiqiq")
_TAIL: Final = Struct(">Iq")
_OFFSET: Final = Struct(">q")
HEAD: Final = Struct(SNAPSHOT_ENTRY.format + "Iq")
PAST_BATCH: Final = Struct(">iqiq")
EXPECTED: Final = Struct(">8xhi20xiqI")
"""The fields of an entry that a next batch is compared with: epoch, last sequence, coordinator epoch, first offset of
the open transaction, number of known sequences."""
EXPIRY: Final = Struct(">14xq4xqiq")
"""The fields of an entry that decide about its expiry: last offset, timestamp, coordinator epoch, first offset of the
open transaction."""
WINDOW: Final = 5
"""How many batches are remembered: as many as an idempotent producer may have in flight (S14)."""
MAX_KNOWN: Final = 2**30
"""Half of all sequences: a sequence further behind the last one than this counts as being ahead of it."""
ANY_SEQUENCE: Final = 2**32 - 1
"""The number of known sequences in an entry made by a marker without a batch before it. The producer's batches have
expired, or were deleted with their segments, so the next batch may have any sequence, as from an unknown producer
(E16)."""

_NEWEST: Final = slice(10, 26)
_NEWEST_TIMESTAMP_AND_PAST: Final = slice(50, HEAD.size + (WINDOW - 2) * PAST_BATCH.size)
"""The positions of the newest batch and of the past ones in an entry. Joined, and without the oldest batch, these bytes
are the past batches of the next entry."""


class ProducerStateEntry(NamedTuple):
    """A producer's state as in Kafka's snapshots and DescribeProducers; -1 means no value."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int

    @property
    def first_sequence(self) -> int:
        """The first sequence of the newest batch."""
        return (
            self.last_sequence if self.last_sequence < 0 else decrement_sequence(self.last_sequence, self.offset_delta)
        )


def describe(entry: bytes) -> ProducerStateEntry:
    """The fields of the entry that Kafka has, too."""
    return ProducerStateEntry._make(SNAPSHOT_ENTRY.unpack_from(entry))


def entry_of_snapshot(fields: bytes) -> bytes:
    """The entry for Kafka's 46 bytes; it remembers only the last batch."""
    _, _, last, _, delta, timestamp, _, _ = SNAPSHOT_ENTRY.unpack(fields)
    return fields + _TAIL.pack(delta + 1 if last >= 0 else ANY_SEQUENCE, timestamp)


def entry_after(
    header: HeaderFields,
    base_offset: int,
    timestamp: int,
    coordinator_epoch: int,
    first_offset: int,
    known: int,
    past: bytes,
) -> bytes:
    """The entry after a batch. `known`: how many sequences before the batch are known to be in the log. A batch without
    a sequence is a coordinator's."""
    _, _, _, _, _, _, delta, _, _, producer_id, epoch, sequence, _ = header
    if sequence >= 0:
        known += delta + 1
        last = increment_sequence(sequence, delta)
    else:
        known, last = 0, NO_SEQUENCE
    return (
        HEAD.pack(
            producer_id, epoch, last, base_offset + delta, delta, timestamp, coordinator_epoch, first_offset,
            known if known < MAX_KNOWN else MAX_KNOWN, timestamp,
        )
        + past
    )  # fmt: skip


def entry_after_marker(
    producer_id: int, epoch: int, coordinator_epoch: int, timestamp: int, entry: bytes | None
) -> bytes:
    """The entry after the marker of a transaction. `entry`: the one before it."""
    if entry is not None:
        _, last_epoch, last, last_offset, delta, _, _, _, known, batch_timestamp = HEAD.unpack_from(entry)
        if last_epoch == epoch:
            return (
                HEAD.pack(
                    producer_id, epoch, last, last_offset, delta, timestamp, coordinator_epoch, NO_OFFSET,
                    known, batch_timestamp,
                )
                + entry[HEAD.size :]
            )  # fmt: skip
    # The marker's new epoch has no batch yet, so its first sequence is 0 (S9).
    known = ANY_SEQUENCE if entry is None else 0
    return HEAD.pack(
        producer_id, epoch, NO_SEQUENCE, NO_OFFSET, 0, timestamp, coordinator_epoch, NO_OFFSET, known, NO_TIMESTAMP
    )


def with_transaction_from(entry: bytes, first_offset: int) -> bytes:
    """The entry with an open transaction that began at that offset; without one if it is `NO_OFFSET`."""
    return entry[: SNAPSHOT_ENTRY.size - _OFFSET.size] + _OFFSET.pack(first_offset) + entry[SNAPSHOT_ENTRY.size :]


def past_batches(entry: bytes) -> bytes:
    """The past batches of the entry that follows `entry`, if the newest batch of `entry` has a sequence."""
    return entry[_NEWEST] + entry[_NEWEST_TIMESTAMP_AND_PAST]


def remembers_past(entry: bytes) -> bool:
    """Whether its newest batch was not the first of its epoch."""
    return len(entry) > HEAD.size


def batches(entry: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(last sequence, last offset, offset delta, timestamp) of the remembered batches, newest first."""
    _, _, last, last_offset, delta, _, _, _, _, timestamp = HEAD.unpack_from(entry)
    if last_offset >= 0:
        yield last, last_offset, delta, timestamp
        yield from PAST_BATCH.iter_unpack(entry[HEAD.size :])


class BatchStreak:
    """Batches of one producer, appended one after another since its `entry` was made.

    Making an entry for each batch would be half of the cost of idempotence. In a streak a batch costs three
    comparisons, and the entry is made when it is asked for.

    Invariants: all batches have the entry's epoch; all are in its open transaction, or it has none; no sequence wraps.
    """

    __slots__ = ("_first_sequence", "batches", "entry", "epoch", "next_sequence", "transactional")

    def __init__(self, entry: bytes, header: HeaderFields) -> None:
        """`entry`: the entry after the batch of `header`."""
        self.entry = entry
        self.epoch = header[PRODUCER_EPOCH]
        self.transactional = header[ATTRIBUTES] & TRANSACTIONAL_BIT
        self._first_sequence = self.next_sequence = header[BASE_SEQUENCE] + header[LAST_OFFSET_DELTA] + 1
        self.batches: deque[tuple[HeaderFields, int, int]] = deque(maxlen=WINDOW)
        """(header, base offset, timestamp) of the newest batches."""

    def settle(self) -> bytes:
        """The entry updated with the batches of the streak; the streak continues from there."""
        _, _, coordinator_epoch, first_offset, known = EXPECTED.unpack_from(self.entry)
        known -= self._first_sequence
        for header, base_offset, timestamp in self.batches:
            past = past_batches(self.entry)
            self.entry = entry_after(
                header, base_offset, timestamp, coordinator_epoch, first_offset, known + header[BASE_SEQUENCE], past
            )
        self._first_sequence = self.next_sequence
        self.batches.clear()
        return self.entry
