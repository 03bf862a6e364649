"""A record as the consumer hands it out, and a batch as a list of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.columns import MAX_DECOMPRESSED_BYTES, Headers, read_columns

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1


class ConsumerRecord(NamedTuple):
    """`timestamp_type` is CREATE_TIME or LOG_APPEND_TIME; a `value` of None is a tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int


# As `_make`, but without a Python call for each record.
_as_record: Final[Callable[[tuple[object, ...]], ConsumerRecord]] = partial(tuple.__new__, ConsumerRecord)


def decode_batch(
    batch: RecordBatch,
    topic: str,
    partition: int,
    from_offset: int,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> list[ConsumerRecord]:
    """The records of `batch` at `from_offset` and after: a batch may begin before the offset that was asked for.

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
