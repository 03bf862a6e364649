"""The batch of a commit from the template has the bytes that the state machine's record has in any other batch."""

import pytest

from oncelog_broker.coordinator.group import records
from oncelog_broker.coordinator.group.commit_batch import CommitBatch
from oncelog_broker.coordinator.group.records import offset_record
from oncelog_protocol.coordinator_records.consumer_offsets import OffsetCommitValue
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record


@pytest.mark.parametrize("metadata", ["", "note", "ä" * 300])
@pytest.mark.parametrize(("offset", "leader_epoch"), [(0, -1), (5, 0), (2**62, 2**30)])
def test_the_template_has_the_bytes_of_the_record(metadata: str, offset: int, leader_epoch: int) -> None:
    now_ms = 1_700_000_000_123
    template = CommitBatch("group", "orders", 3, metadata)
    value = OffsetCommitValue(
        offset=offset, leader_epoch=leader_epoch, metadata=metadata, commit_timestamp=now_ms, expire_timestamp=-1
    )
    record = offset_record("group", "orders", 3, value)
    key, encoded = records.encode(record)
    assert template.record(offset, leader_epoch, now_ms) == record
    batch = template.bytes(offset, leader_epoch, now_ms)
    assert batch == build_batch([Record(0, now_ms, key, encoded, [])])
    assert RecordBatch(memoryview(batch)).crc_is_valid()


def test_each_batch_is_a_buffer_of_its_own() -> None:
    template = CommitBatch("group", "orders", 3, "")
    first = template.bytes(1, 0, 1000)
    kept = bytes(first)
    template.bytes(2, 1, 2000)
    assert first == kept
