"""The records of the consumer, as single records and as batches of lists or columns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.columns import MAX_DECOMPRESSED_BYTES, Headers, read_columns, records_view

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:  # the standard library's TypeVar supports defaults since Python 3.13
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """A record. Key and value are bytes, the results of the deserializers (types K and V), or None; a `value` of None
    is a tombstone. `timestamp_type` is CREATE_TIME or LOG_APPEND_TIME.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: K | None
    value: V | None
    headers: Headers
    leader_epoch: int


@dataclass(slots=True)
class ColumnBatch:
    """The records of one batch as columns: a list for each field, all of the same length and not empty.

    Columns are for programs that build tables: no object is created per record. `timestamp_type` is CREATE_TIME or
    LOG_APPEND_TIME.
    """

    offsets: list[int]
    timestamps_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]
    timestamp_type: int
    leader_epoch: int

    def cut(self, start: int, end: int) -> ColumnBatch | None:
        """Return the records with `start` <= offset < `end`; None if there are none. Returns the batch itself if all
        its records are in this range.
        """
        low, high = bisect_left(self.offsets, start), bisect_left(self.offsets, end)
        if low >= high:
            return None
        if low == 0 and high == len(self.offsets):
            return self
        part = slice(low, high)
        fields = (self.offsets[part], self.timestamps_ms[part], self.keys[part], self.values[part], self.headers[part])
        return ColumnBatch(*fields, self.timestamp_type, self.leader_epoch)


class UndecodedBatch(NamedTuple):
    """A batch whose records are decompressed, but not decoded. Use only the records with `start` <= offset < `end`,
    because a batch may begin before the fetched offset. If the batch was not compressed, `data` is a view of the
    fetch response."""

    batch: RecordBatch
    data: bytes | memoryview
    start: int
    end: int

    @property
    def is_cut(self) -> bool:
        """Whether the batch may have records outside the bounds."""
        return self.batch.base_offset < self.start or self.batch.next_offset > self.end

    def cut(self, start: int, end: int) -> UndecodedBatch | None:
        """Return this batch with its bounds narrowed to `start` and `end`; None if no offset is left."""
        low, high = max(start, self.start), min(end, self.end, self.batch.next_offset)
        return self._replace(start=low, end=high) if max(low, self.batch.base_offset) < high else None

    def decoded(self) -> ColumnBatch | None:
        """Decode the records; None if the batch has no records within its bounds. Raises CorruptBatch."""
        columns = decode_columns(self.batch, self.start, len(self.data))
        return None if columns is None else columns.cut(self.start, self.end)


class BatchHeader(NamedTuple):
    """The header of one batch. `base_sequence`, producer id and epoch are -1 for a batch without idempotence;
    `base_sequence` is also -1 for a control batch.
    """

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool


# Create a ConsumerRecord from a tuple. Unlike `_make`, this partial function runs no Python code, so it is cheap per
# record.
_as_record: Final[Callable[[tuple[object, ...]], ConsumerRecord]] = partial(tuple.__new__, ConsumerRecord)


def decode_columns(
    batch: RecordBatch, from_offset: int, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> ColumnBatch | None:
    """Decode the records of a batch from `from_offset` on as columns; None if the batch has no such record. Raises
    CorruptBatch.
    """
    columns = read_columns(batch, max_decompressed_bytes=max_decompressed_bytes)
    if columns.error is not None:
        raise columns.error
    fields = (columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers)
    timestamp_type = LOG_APPEND_TIME if batch.is_log_append_time else CREATE_TIME
    decoded = ColumnBatch(*fields, timestamp_type, batch.partition_leader_epoch)
    if columns.offsets and columns.offsets[0] >= from_offset:
        return decoded
    return decoded.cut(from_offset, batch.next_offset)


def undecoded(batch: RecordBatch, from_offset: int, max_decompressed_bytes: int) -> UndecodedBatch | None:
    """Decompress a batch; None if its header says that all its records are before `from_offset`. Raises
    CorruptBatch."""
    data = records_view(batch, max_decompressed_bytes)
    if not batch.records_count or batch.next_offset <= from_offset:
        return None
    return UndecodedBatch(batch, data, from_offset, batch.next_offset)


def header_of(batch: RecordBatch) -> BatchHeader:
    """Return the header of a batch, without reading its records."""
    producer = batch.producer_id, batch.producer_epoch, batch.base_sequence
    return BatchHeader(batch.base_offset, batch.last_offset, *producer, batch.is_transactional, batch.is_control)


def columns_of(records: Sequence[ConsumerRecord]) -> ColumnBatch:
    """Return the records of one batch as columns."""
    _, _, offsets, timestamps, types, keys, values, headers, epochs = map(list, zip(*records, strict=True))
    return ColumnBatch(offsets, timestamps, keys, values, headers, types[0], epochs[0])


def decode_batch(
    batch: RecordBatch,
    topic: str,
    partition: int,
    from_offset: int,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> list[ConsumerRecord]:
    """Return the records of `batch` from `from_offset` on, because a batch may start before the requested offset.

    Raises CorruptBatch.
    """
    columns = read_columns(batch, max_decompressed_bytes=max_decompressed_bytes)
    if columns.error is not None:
        raise columns.error
    rows = zip(
        repeat(topic),
        repeat(partition),
        columns.offsets,
        columns.timestamps,
        repeat(LOG_APPEND_TIME if batch.is_log_append_time else CREATE_TIME),
        columns.keys,
        columns.values,
        columns.headers,
        repeat(batch.partition_leader_epoch),
    )
    records = list(map(_as_record, rows))
    if batch.base_offset >= from_offset:
        return records
    return [record for record in records if record.offset >= from_offset]
