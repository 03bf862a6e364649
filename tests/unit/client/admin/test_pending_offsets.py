"""Which offsets the records of __consumer_offsets commit within a transaction."""

from __future__ import annotations

import pytest

from oncelog.admin.hanging import OpenTransaction, ProducerState
from oncelog.admin.pending_offsets import committed_by, is_part_of
from oncelog.cluster import TopicPartition
from oncelog_protocol.coordinator_records.consumer_offsets import (
    GROUP_METADATA_KEY_VERSION,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from oncelog_protocol.coordinator_records.versioned import encode_versioned
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.builder import RecordBatchBuilder

HERE = TopicPartition("orders", 0)


def key(partition: int = 0) -> bytes:
    return encode_versioned(OffsetCommitKey(group="g", topic="orders", partition=partition), 1)


def value(offset: int) -> bytes:
    return encode_versioned(OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1), 3)


def batch(*records: tuple[bytes | None, bytes | None], base_offset: int = 5) -> RecordBatch:
    builder = RecordBatchBuilder(10_000)
    for each_key, each_value in records:
        builder.append(0, each_key, each_value)
    builder.close()
    made = builder.build(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True, base_offset=base_offset)
    return RecordBatch(bytes(made))


def test_the_last_offset_of_a_partition_counts() -> None:
    records = (key(), value(3)), (key(1), value(8)), (key(), value(4))
    assert committed_by(batch(*records)) == {("g", HERE): 4, ("g", TopicPartition("orders", 1)): 8}


@pytest.mark.parametrize(
    "record",
    [
        (None, value(1)),
        (key(), None),
        (b"", value(1)),
        (key()[:-1], value(1)),
        (key(), value(1)[:-1]),
        (key(), b"\x00\x63"),
        (encode_versioned(GroupMetadataKey(group="g"), GROUP_METADATA_KEY_VERSION), value(1)),
        (b"\x00\x0f" + key()[2:], value(1)),
    ],
)
def test_records_that_are_no_committed_offsets_are_skipped(record: tuple[bytes | None, bytes | None]) -> None:
    assert committed_by(batch(record, (key(1), value(2)))) == {("g", TopicPartition("orders", 1)): 2}


def test_only_batches_of_the_open_transaction_count() -> None:
    state = ProducerState(7, 0, 0, 0, -1, 6)
    transaction = OpenTransaction(TopicPartition("__consumer_offsets", 0), state, 6, None)
    record = (key(), value(1))
    assert is_part_of(batch(record, base_offset=6), transaction)
    assert not is_part_of(batch(record, base_offset=5), transaction), "an earlier transaction of the same producer"
