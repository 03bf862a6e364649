"""A record as the consumer hands it out, and a batch as a list of them."""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.record import Headers, read_records

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

_new: Final = tuple.__new__


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


def decode_batch(batch: RecordBatch, topic: str, partition: int, from_offset: int) -> list[ConsumerRecord]:
    """The records of `batch` at `from_offset` and after: a batch may begin before the offset that was asked for.

    Raises CorruptBatch.
    """
    timestamp_type = LOG_APPEND_TIME if batch.is_log_append_time else CREATE_TIME
    epoch = batch.partition_leader_epoch
    # Made as a tuple at once: the generated __new__ of a named tuple, called with nine arguments, takes three times that.
    records = [
        _new(
            ConsumerRecord,
            (
                topic,
                partition,
                record.offset,
                record.timestamp,
                timestamp_type,
                record.key,
                record.value,
                record.headers,
                epoch,
            ),
        )
        for record in read_records(batch)
    ]
    if batch.base_offset >= from_offset:
        return records
    return [record for record in records if record.offset >= from_offset]
