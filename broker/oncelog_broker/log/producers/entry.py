"""The state of one producer id in a log, stored as immutable `bytes`, which this package calls an *entry*.

Because entries are `bytes`, the garbage collector skips the dictionary of 100,000 producers, and a copy of the entire
state is only a list of references. The layout of an entry:

- 46 bytes in the layout of Kafka's snapshot (S55): producer id, epoch, last sequence, last offset, offset delta,
  timestamp, coordinator epoch, first offset of the open transaction or -1.
- 4 bytes: the number of sequences, counted back from the last sequence, that are certainly in the log. Sequences of
  earlier epochs, or of earlier transactions of this epoch, are not counted. If there is no last sequence, this field is
  0 when no batch was
  written in this epoch (the next sequence must be 0), or ANY_SEQUENCE when it is unknown whether a batch was written.
- 8 bytes: timestamp of the newest batch; the timestamp in the first 46 bytes may belong to a marker.
- 24 bytes for each past batch (0 to 4 batches before the newest batch, newest first): last sequence, last offset,
  offset delta, timestamp.

A producer that is writing has an entry and a `BatchStreak`, which contains the consecutive batches since that entry was
created.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import Final

from oncelog_broker.log.header_fields import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    LAST_OFFSET_DELTA,
    PRODUCER_EPOCH,
    HeaderFields,
)
from oncelog_protocol.light_classes import NamedTuple
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
"""The fields of an entry with which the next batch is compared: epoch, last sequence, coordinator epoch, first offset
of the open transaction, number of known sequences.
"""
EXPIRY: Final = Struct(">14xq4xqiq")
"""The fields of an entry that decide whether the producer expires: last offset, timestamp, coordinator epoch, first
offset of the
open transaction.
"""
WINDOW: Final = 5
"""The number of batches that are remembered for each producer, equal to the number that an idempotent producer may have
in flight (S14).
"""
MAX_KNOWN: Final = 2**30
"""Half of the range of sequences. Sequences wrap, so a sequence that is more than this number behind the last sequence
counts as ahead of it.
"""
ANY_SEQUENCE: Final = 2**32 - 1
"""A special number of known sequences, for an entry that a marker created while the producer's earlier batches were
unknown. The earlier batches are unknown because the producer has expired, or because its records were deleted. The next
batch may have any sequence, as for an unknown producer (E16).
"""

_NEWEST: Final = slice(10, 26)
_NEWEST_TIMESTAMP_AND_PAST: Final = slice(50, HEAD.size + (WINDOW - 2) * PAST_BATCH.size)
"""The byte ranges of the newest batch and of the past batches in an entry. The next entry's past batches are these two
ranges joined; the oldest batch is dropped.
"""


class ProducerStateEntry(NamedTuple):
    """The state of one producer as in Kafka's snapshots and DescribeProducers; -1 means no value."""

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
        """The first sequence of the newest batch; -1 if that batch has no sequence."""
        return (
            self.last_sequence if self.last_sequence < 0 else decrement_sequence(self.last_sequence, self.offset_delta)
        )


def describe(entry: bytes) -> ProducerStateEntry:
    """Return the fields of the entry that are also in Kafka's snapshots."""
    return ProducerStateEntry._make(SNAPSHOT_ENTRY.unpack_from(entry))


def entry_of_snapshot(fields: bytes) -> bytes:
    """Return the entry for Kafka's 46 bytes, which contain only the last batch."""
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
    """Return the producer's entry after a batch. `known` is the number of sequences before the batch that are known to
    be in the log. A batch without a sequence comes from a coordinator.
    """
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
    """Return the producer's entry after a transaction marker. `entry` is the producer's entry before the marker, or
    None if the producer is unknown.
    """
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
    """Return the entry with an open transaction that began at `first_offset`; `NO_OFFSET` means no open transaction."""
    return entry[: SNAPSHOT_ENTRY.size - _OFFSET.size] + _OFFSET.pack(first_offset) + entry[SNAPSHOT_ENTRY.size :]


def past_batches(entry: bytes) -> bytes:
    """Return the past batches for the entry that follows `entry`; valid only if the newest batch of `entry` has a
    sequence.
    """
    return entry[_NEWEST] + entry[_NEWEST_TIMESTAMP_AND_PAST]


def remembers_past(entry: bytes) -> bool:
    """Whether the entry has a batch before the newest batch, in the same epoch."""
    return len(entry) > HEAD.size


def batches(entry: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield (last sequence, last offset, offset delta, timestamp) of the remembered batches, newest first."""
    _, _, last, last_offset, delta, _, _, _, _, timestamp = HEAD.unpack_from(entry)
    if last_offset >= 0:
        yield last, last_offset, delta, timestamp
        yield from PAST_BATCH.iter_unpack(entry[HEAD.size :])


class BatchStreak:
    """A batch streak: consecutive batches that one producer appended after its `entry` was created.

    Creating an entry for each batch would be half of the cost of idempotence. Within a streak (batches since the last
    entry), a batch costs three comparisons, and the entry is created only when it is needed.

    Invariants: all batches have the entry's epoch; if the entry has an open transaction, all batches belong to that
    transaction; the sequences do not wrap.
    """

    __slots__ = ("_first_sequence", "batches", "entry", "epoch", "next_sequence", "transactional")

    def __init__(self, entry: bytes, header: HeaderFields) -> None:
        """`entry` is the entry after the batch with this `header`."""
        self.entry = entry
        self.epoch = header[PRODUCER_EPOCH]
        self.transactional = header[ATTRIBUTES] & TRANSACTIONAL_BIT
        self._first_sequence = self.next_sequence = header[BASE_SEQUENCE] + header[LAST_OFFSET_DELTA] + 1
        self.batches: deque[tuple[HeaderFields, int, int]] = deque(maxlen=WINDOW)
        """(header, base offset, timestamp) of each batch that the next entry will contain."""

    def settle(self) -> bytes:
        """Add the batches of the streak (batches since the entry was created) to the entry and return the new entry;
        the streak then continues from the new entry.
        """
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
