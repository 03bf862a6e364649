"""A batch of records for one partition, and the futures of its records."""

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


# Create a RecordMetadata from a tuple. Unlike `_make`, this partial function runs no Python code, so it is cheap per
# record.
_as_metadata: Final[Callable[[tuple[object, ...]], RecordMetadata]] = partial(tuple.__new__, RecordMetadata)


class Waiter(Protocol):
    """The methods of asyncio.Future that batches use."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Any, /) -> None: ...
    def exception(self) -> Any: ...


class ProducerBatch:
    """A batch. Invariant: `waiters` and `timestamps` have one entry for each record, in order.

    `order` is the sort key by which a retried batch finds its place in the queue: (batch number,). For a piece of a
    split batch, `order` is the order of that batch followed by the number of the piece. The pieces of a split batch are
    therefore sorted to the position that the original batch had.

    `identity` and `base_sequence` are set when the batch is first drained, and are kept for all retries unless the
    partition is renumbered (S21). `is_maybe_written` says that an attempt with this identity and sequence got no
    response that shows whether the batch was written.
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
        """Add a record; return whether there was room for it. (`Producer.send` inlines this code, because it runs per
        record.)
        """
        if self.builder.append(timestamp, key, value, headers) is None:
            return False
        self.timestamps.append(timestamp)
        self.waiters.append(waiter)
        return True

    def extend(
        self, timestamp: int, keys: Sequence[bytes] | None, values: Sequence[bytes], waiter: ColumnWaiter
    ) -> int:
        """Add as many of the records as fit, and return their number."""
        count = self.builder.extend(timestamp, keys, values)
        self.timestamps += repeat(timestamp, count)
        self.waiters += repeat(waiter, count)
        self.has_columns = True
        return count

    def extend_packed(self, pack_more: Callable[[int, int, int], Packed], waiter: ColumnWaiter) -> int:
        """Add the records that `pack_more` encodes, and return their number."""
        timestamps = self.builder.extend_packed(pack_more)
        self.timestamps += timestamps
        self.waiters += repeat(waiter, len(timestamps))
        self.has_columns = True
        return len(timestamps)

    @classmethod
    def whole(
        cls,
        topic: str,
        partition: int,
        order: tuple[int, ...],
        packed: Packed,
        waiter: ColumnWaiter,
        created: float,
        deadline: float,
    ) -> ProducerBatch:
        """Return a batch that has all its records, encoded in `packed` as `RecordBatchBuilder.whole` requires."""
        batch = cls(topic, partition, order, RecordBatchBuilder.whole(packed), created, deadline)
        batch.timestamps += packed.timestamps_ms
        batch.waiters += repeat(waiter, len(packed.timestamps_ms))
        batch.has_columns = True
        return batch

    def close(self, compression: Compression) -> None:
        """Accept no more records. A second call does nothing."""
        if not self.builder.is_closed:
            self.uncompressed_size = self.builder.size
            self.builder.close(compression)

    def build(self, *, transactional: bool = False) -> bytearray | memoryview:
        """Return the encoded batch."""
        producer_id, epoch = self.identity
        return self.builder.build(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self.base_sequence,
            transactional=transactional,
        )

    @property
    def is_stamped(self) -> bool:
        """Whether the batch has sequence numbers."""
        return self.base_sequence != NO_SEQUENCE

    @property
    def end_sequence(self) -> int:
        """The sequence number after the last record (S10, S11)."""
        return increment_sequence(self.base_sequence, self.builder.records_count)

    @property
    def number(self) -> int:
        """The number of the batch. Later batches have higher numbers; a piece of a split batch has the number of the
        original batch.
        """
        return self.order[0]

    @property
    def size(self) -> int:
        return self.builder.size

    @property
    def records_count(self) -> int:
        return self.builder.records_count

    def acknowledge(self, base_offset: int, log_append_time_ms: int = NO_TIMESTAMP) -> None:
        """Complete the futures, because the batch is in the log."""
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
        """Complete the waiters; the waiter of a column represents many records and is completed once for all of
        them."""
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
        """Fail the futures, because the batch will not be sent (again).

        `at_fault` has the errors of the invalid records, by index (KIP-467). Invalid records get their own errors, and
        the other records get RejectedWithBatch, as with Kafka's client.
        """
        own = {index: told for index, told in (at_fault or {}).items() if 0 <= index < len(self.waiters)}
        rest = RejectedWithBatch(error) if own else error
        for index, waiter in enumerate(self.waiters):
            if not waiter.done():
                waiter.set_exception(own.get(index, rest))
                # Mark the error as retrieved, so that the loop does not log it if no caller awaits the future
                waiter.exception()

    def split(self, size_limit: int) -> list[ProducerBatch]:
        """Return the same records in batches of at most `size_limit` bytes before compression, with at least one record
        each.
        """
        pieces: list[ProducerBatch] = []
        # The limit of decompressed bytes does not apply to the producer's own batch.
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
    """Return the error for a batch that failed with an exception other than KafkaError."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the batch could not be sent: {error!r}")
