"""Builds the batch that logs a committed offset from a template: commits of the same group, partition and metadata
differ only in numbers of fixed size. Pure.
"""

from __future__ import annotations

from struct import Struct

from oncelog_broker.coordinator.group import records
from oncelog_broker.coordinator.group.offsets import NO_EXPIRY
from oncelog_broker.coordinator.group.records import OffsetRecord, offset_record
from oncelog_protocol.coordinator_records.consumer_offsets import OffsetCommitValue
from oncelog_protocol.records.batch import BASE_TIMESTAMP_AT, CRC_AT, batch_crc
from oncelog_protocol.records.builder import single_record_batch
from oncelog_protocol.templates import changing

TIMESTAMPS = Struct(">qq")
"""The base timestamp and the maximum timestamp of a batch, which are adjacent."""
CRC = Struct(">I")


class CommitBatch:
    """The template of the batches for one partition of a group, with the same metadata in each commit. The batches are
    not compressed, and the offsets do not expire before the group's other offsets.
    """

    __slots__ = ("_kept", "_key", "_metadata", "_pack")

    def __init__(self, group_id: str, topic: str, partition: int, metadata: str) -> None:
        record = offset_record(group_id, topic, partition, _value(0, 0, metadata, 0))
        self._key, self._metadata, value = record.key, metadata, record.value
        places = ((value, "offset"), (value, "leader_epoch"), (value, "commit_timestamp"))
        pattern = changing(lambda: _batch(record), *places)
        layout = Struct(">" + pattern.format)
        self._pack, self._kept = layout.pack, pattern.kept

    def record(self, offset: int, leader_epoch: int, now_ms: int) -> OffsetRecord:
        """Return the record of a commit at the wall time `now_ms`."""
        return OffsetRecord(self._key, _value(offset, leader_epoch, self._metadata, now_ms))

    def bytes(self, offset: int, leader_epoch: int, now_ms: int) -> bytearray:
        """Return the batch with this record."""
        first, second, third, last = self._kept
        batch = bytearray(self._pack(first, offset, second, leader_epoch, third, now_ms, last))
        TIMESTAMPS.pack_into(batch, BASE_TIMESTAMP_AT, now_ms, now_ms)
        CRC.pack_into(batch, CRC_AT, batch_crc(batch))
        return batch


def _value(offset: int, leader_epoch: int, metadata: str, now_ms: int) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=now_ms,
        expire_timestamp=NO_EXPIRY,
    )


def _batch(record: OffsetRecord) -> bytes:
    """Return the batch of a record with timestamps and CRC 0; `CommitBatch.bytes` fills them in."""
    batch = single_record_batch(0, *records.encode(record))
    CRC.pack_into(batch, CRC_AT, 0)
    return bytes(batch)
