"""The records of one partition that travel together, and the futures of those who wait for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby, repeat
from typing import Any, Final, Protocol

from oncelog.errors import ErrorCode, KafkaError, RejectedWithBatch
from oncelog.producer.column_waiter import ColumnWaiter
from oncelog.producer.record_metadata import NO_OFFSET, RecordMetadata
from oncelog_protocol.producer_id import NO_IDENTITY
from oncelog_protocol.records.batch import NO_SEQUENCE, Buffer, RecordBatch
from oncelog_protocol.records.builder import HeaderSequence, RecordBatchBuilder
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.packing import Packed
from oncelog_protocol.records.record import read_records
from oncelog_protocol.records.sequence import increment_sequence

NO_TIMESTAMP: Final = -1


# As `_make`, but without a Python call for each record.
_as_metadata: Final[Callable[[tuple[object, ...]], RecordMetadata]] = partial(tuple.__new__, RecordMetadata)


class Waiter(Protocol):
    """What we need of an asyncio.Future."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Any, /) -> None: ...
    def exception(self) -> Any: ...


class ProducerBatch:
    """Invariant: `waiters` and `timestamps` have one entry for each record, in order.

    `order` says where a batch that is sent again goes in its queue: (number,), or for a piece of a batch that was split
    the order of that batch and the piece's own number. So pieces sort between the batches around the one they were.

    `identity` and `base_sequence` are stamped when the batch is drained for the first time, and stay for all retries
    unless the partition is numbered anew (S21). `is_maybe_written`: a try of this stamp ended without a clear answer.
    """

    __slots__ = (
        "attempts",
        "base_sequence",
        "builder",
        "created",
        "deadline",
        "has_columns",
        "identity",
        "is_maybe_written",
        "last_error",
        "not_before",
        "order",
        "partition",
        "reserved",
        "timestamps",
        "topic",
        "uncompressed_size",
        "waiters",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        order: tuple[int, ...],
        builder: RecordBatchBuilder,
        created: float,
        deadline: float,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.order = order
        self.builder = builder
        self.created = created
        self.deadline = deadline
        self.not_before = 0.0
        self.attempts = 0
        self.identity = NO_IDENTITY
        self.base_sequence = NO_SEQUENCE
        self.is_maybe_written = False
        self.last_error: KafkaError | None = None
        self.reserved = 0
        self.uncompressed_size = 0
        self.timestamps: list[int] = []
        self.waiters: list[Waiter] = []
        self.has_columns = False

    def append(
        self, timestamp: int, key: Buffer | None, value: Buffer | None, headers: HeaderSequence, waiter: Waiter
    ) -> bool:
        """Whether there was room for the record. (`Producer.send` does the same in place: it is called per record.)"""
        if self.builder.append(timestamp, key, value, headers) is None:
            return False
        self.timestamps.append(timestamp)
        self.waiters.append(waiter)
        return True

    def extend(
        self, timestamp: int, keys: Sequence[bytes] | None, values: Sequence[bytes], waiter: ColumnWaiter
    ) -> int:
        """How many of the records there was room for, as the builder adds them."""
        count = self.builder.extend(timestamp, keys, values)
        self.timestamps += repeat(timestamp, count)
        self.waiters += repeat(waiter, count)
        self.has_columns = True
        return count

    def extend_packed(self, pack_more: Callable[[int, int, int], Packed], waiter: ColumnWaiter) -> int:
        """How many records were added: those that `pack_more` encodes, as the builder calls it."""
        timestamps = self.builder.extend_packed(pack_more)
        self.timestamps += timestamps
        self.waiters += repeat(waiter, len(timestamps))
        self.has_columns = True
        return len(timestamps)

    def close(self, compression: Compression) -> None:
        """Take no more records. Does nothing the second time."""
        if not self.builder.is_closed:
            self.uncompressed_size = self.builder.size
            self.builder.close(compression)

    def build(self, *, transactional: bool = False) -> bytearray:
        """The closed batch as it goes on the wire."""
        producer_id, epoch = self.identity
        return self.builder.build(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self.base_sequence,
            transactional=transactional,
        )

    @property
    def is_stamped(self) -> bool:
        """Whether it has been given sequence numbers."""
        return self.base_sequence != NO_SEQUENCE

    @property
    def end_sequence(self) -> int:
        """The sequence of the record that comes after this batch (S10, S11)."""
        return increment_sequence(self.base_sequence, self.builder.records_count)

    @property
    def number(self) -> int:
        """Of the batch that this is, or was a piece of: they grow in order of creation."""
        return self.order[0]

    @property
    def size(self) -> int:
        return self.builder.size

    @property
    def records_count(self) -> int:
        return self.builder.records_count

    def acknowledge(self, base_offset: int, log_append_time_ms: int = NO_TIMESTAMP) -> None:
        """The broker has the batch: tell those who wait."""
        if self.has_columns:
            self._acknowledge_runs(base_offset, log_append_time_ms)
            return
        count = len(self.waiters)
        offsets = repeat(NO_OFFSET) if base_offset < 0 else range(base_offset, base_offset + count)
        timestamps = self.timestamps if log_append_time_ms < 0 else repeat(log_append_time_ms)
        places = zip(repeat(self.topic), repeat(self.partition), offsets, timestamps, strict=False)
        for waiter, metadata in zip(self.waiters, map(_as_metadata, places), strict=False):
            if not waiter.done():
                waiter.set_result(metadata)

    def _acknowledge_runs(self, base_offset: int, log_append_time_ms: int) -> None:
        """A column's waiter stands in the places of many records, and is told of all of them at once."""
        index = 0
        for waiter, run in groupby(self.waiters):
            count = len(tuple(run))
            if not waiter.done():
                offset = NO_OFFSET if base_offset < 0 else base_offset + index
                timestamp = self.timestamps[index] if log_append_time_ms < 0 else log_append_time_ms
                first = RecordMetadata(self.topic, self.partition, offset, timestamp)
                if isinstance(waiter, ColumnWaiter):
                    waiter.set_results(first, count)
                else:
                    waiter.set_result(first)
            index += count

    def fail(self, error: KafkaError, at_fault: Mapping[int, KafkaError] | None = None) -> None:
        """The batch will not be sent (again): tell those who wait.

        `at_fault` are the records for whose sake it was refused, by their place in it (KIP-467): they get their own
        errors, and the others RejectedWithBatch, as with Kafka's client.
        """
        own = {index: told for index, told in (at_fault or {}).items() if 0 <= index < len(self.waiters)}
        rest = RejectedWithBatch(error) if own else error
        for index, waiter in enumerate(self.waiters):
            if not waiter.done():
                waiter.set_exception(own.get(index, rest))
                waiter.exception()  # seen: a caller who does not look at its future is not an error of the loop

    def split(self, size_limit: int) -> list[ProducerBatch]:
        """The same records in batches of at most `size_limit` bytes before compression, each of one record at least."""
        pieces: list[ProducerBatch] = []
        # What we have packed ourselves is not too large for us, whatever readers allow themselves.
        records = read_records(RecordBatch(self.builder.build()), max_decompressed_bytes=self.uncompressed_size)
        for record, timestamp, waiter in zip(records, self.timestamps, self.waiters, strict=True):
            if not pieces or not pieces[-1].append(timestamp, record.key, record.value, record.headers, waiter):
                order = (*self.order, len(pieces))
                builder = RecordBatchBuilder(size_limit)
                piece = ProducerBatch(self.topic, self.partition, order, builder, self.created, self.deadline)
                piece.append(timestamp, record.key, record.value, record.headers, waiter)
                piece.attempts, piece.is_maybe_written = self.attempts, self.is_maybe_written
                pieces.append(piece)
        return pieces


def unsendable(error: Exception) -> KafkaError:
    """What is told of a batch that could not be made, or sent, for a reason that is no KafkaError."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the batch could not be sent: {error!r}")
