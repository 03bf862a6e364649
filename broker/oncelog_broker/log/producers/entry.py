"""What a log knows of one producer id: pure.

It is an immutable `bytes`, an *entry*, so that 100,000 of them are one dictionary that the garbage collector passes
over, and an image of all is a list of references:

            46 bytes   as in Kafka's snapshot (S55): producer id, epoch, last sequence, last offset, offset delta,
                       timestamp, coordinator epoch, first offset of the open transaction or -1
             4         how many sequences up to the last one are known to be in the log, in this epoch and since its
                       newest transaction began; without a last one, 0 if none came in this epoch (the next is 0),
                       ANY_SEQUENCE if that is not known
             8         timestamp of the newest batch (the one above may be a marker's)
        0..4 x 24      the batches before that, newest first: last sequence, last offset, offset delta, timestamp

A producer that is writing is an entry and a `BatchStreak`: the batches that came since, one after another.
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
"""Of an entry what a next batch is compared with: epoch, last sequence, coordinator epoch, first offset of the open
transaction, how many sequences are known."""
EXPIRY: Final = Struct(">14xq4xqiq")
"""Of an entry: last offset, timestamp, coordinator epoch, first offset of the open transaction."""
WINDOW: Final = 5
"""Batches that are remembered: what an idempotent producer may have in flight (S14)."""
MAX_KNOWN: Final = 2**30
"""Half of all sequences: more than that behind the last one is ahead of it."""
ANY_SEQUENCE: Final = 2**32 - 1
"""Known of an entry that a marker made without a batch before it: the producer's batches expired, or were deleted with
their segments, so that the next one may have any sequence, as of a producer that is not known at all (E16)."""

_NEWEST: Final = slice(10, 26)
_NEWEST_TIMESTAMP_AND_PAST: Final = slice(50, HEAD.size + (WINDOW - 2) * PAST_BATCH.size)
"""Where an entry has the newest batch and the past ones. These two together are past batches again, the oldest one
gone, when one more joins them."""


class ProducerStateEntry(NamedTuple):
    """A producer as Kafka's snapshots and DescribeProducers show it; -1 where there is none of a thing."""

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
        """Of the newest batch."""
        return (
            self.last_sequence if self.last_sequence < 0 else decrement_sequence(self.last_sequence, self.offset_delta)
        )


def describe(entry: bytes) -> ProducerStateEntry:
    """The part of an entry that Kafka knows too."""
    return ProducerStateEntry._make(SNAPSHOT_ENTRY.unpack_from(entry))


def entry_of_snapshot(fields: bytes) -> bytes:
    """The entry that Kafka's 46 bytes make, with its last batch as the only one that is remembered."""
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
    """The entry after a batch, before which `known` sequences are known to be in the log. One without a sequence is a
    coordinator's."""
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
    """The entry after the end of a transaction, before which it was `entry`."""
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
    # An epoch that begins with this marker has no batch yet, so its first sequence is 0 (S9).
    known = ANY_SEQUENCE if entry is None else 0
    return HEAD.pack(
        producer_id, epoch, NO_SEQUENCE, NO_OFFSET, 0, timestamp, coordinator_epoch, NO_OFFSET, known, NO_TIMESTAMP
    )


def with_transaction_from(entry: bytes, first_offset: int) -> bytes:
    """The entry with a transaction open that began there; with none, if it is `NO_OFFSET`."""
    return entry[: SNAPSHOT_ENTRY.size - _OFFSET.size] + _OFFSET.pack(first_offset) + entry[SNAPSHOT_ENTRY.size :]


def past_batches(entry: bytes) -> bytes:
    """What an entry, the newest batch of which has a sequence, leaves to the next one."""
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
    """Batches of one producer that were appended one after another since its `entry` was made.

    For a producer that keeps writing an entry with each batch is half of what idempotence costs. Here a batch is three
    comparisons, and the entry is made when somebody asks for it.
    Invariants: all have the entry's epoch; all are in its open transaction, or there is none; no sequence wraps.
    """

    __slots__ = ("_first_sequence", "batches", "entry", "epoch", "next_sequence", "transactional")

    def __init__(self, entry: bytes, header: HeaderFields) -> None:
        """`entry` is that after the batch of `header`."""
        self.entry = entry
        self.epoch = header[PRODUCER_EPOCH]
        self.transactional = header[ATTRIBUTES] & TRANSACTIONAL_BIT
        self._first_sequence = self.next_sequence = header[BASE_SEQUENCE] + header[LAST_OFFSET_DELTA] + 1
        self.batches: deque[tuple[HeaderFields, int, int]] = deque(maxlen=WINDOW)
        """(header, base offset, timestamp) of the newest ones."""

    def settle(self) -> bytes:
        """The entry with the batches in it, from which the streak goes on."""
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
