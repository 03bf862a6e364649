"""The records and batches that are built from cached parts have the bytes of the declared messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog_broker.coordinator.transaction import records
from oncelog_broker.coordinator.transaction.metadata import (
    NO_EPOCH,
    NO_TIMEOUT_MS,
    TopicPartition,
    TransactionMetadata,
)
from oncelog_broker.coordinator.transaction.records import TransactionRecord
from oncelog_broker.coordinator.transaction.state_batch import (
    MAX_KEPT_PARTITIONS,
    _kept_list,
    declared_value,
    key_bytes,
    state_batch,
    value_bytes,
)
from oncelog_broker.coordinator.transaction.states import TransactionState
from oncelog_protocol.coordinator_records.transaction_state import (
    TRANSACTION_LOG_VALUE_VERSION,
    TransactionLogKey,
    TransactionLogValue,
)
from oncelog_protocol.coordinator_records.versioned import encode_versioned
from oncelog_protocol.errors import UnencodableMessage
from oncelog_protocol.records.batch import NO_PRODUCER_ID, RecordBatch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

ids = st.sampled_from([NO_PRODUCER_ID, 0, 7, 2**63 - 1])
times = st.sampled_from([-1, 0, 1_700_000_000_123])
places = st.builds(TopicPartition, st.sampled_from(["a", "orders", "ä" * 100]), st.integers(0, 400))
states = st.builds(
    TransactionMetadata,
    transactional_id=st.sampled_from(["a", "ä" * 300, "x" * 600]),
    producer_id=ids,
    producer_epoch=st.integers(-1, 2**15 - 1),
    timeout_ms=st.sampled_from([0, 60_000, 2**31 - 1]),
    state=st.sampled_from([state for state in TransactionState if state is not TransactionState.EMPTY]),
    partitions=st.frozensets(places, max_size=5),
    start_timestamp=times,
    last_update_timestamp=times,
    previous_producer_id=ids,
    next_producer_id=ids,
    client_transaction_version=st.sampled_from([0, 2]),
    last_epoch=st.just(NO_EPOCH),
    next_producer_epoch=st.sampled_from([NO_EPOCH, 0, 9]),
    next_timeout_ms=st.just(NO_TIMEOUT_MS),
)
METADATA = TransactionMetadata("a", 7, 3, 60_000, TransactionState.ONGOING, frozenset({TopicPartition("orders", 1)}))


@given(states)
def test_the_parts_have_the_bytes_of_the_declared_record(metadata: TransactionMetadata) -> None:
    value = encode_versioned(declared_value(metadata), TRANSACTION_LOG_VALUE_VERSION)
    key = encode_versioned(TransactionLogKey(transactional_id=metadata.transactional_id), 0)
    assert (key_bytes(metadata.transactional_id), value_bytes(metadata)) == (key, value)
    batch = state_batch(metadata)
    assert batch == build_batch([Record(0, metadata.last_update_timestamp, key, value, [])])
    assert RecordBatch(memoryview(batch)).crc_is_valid()
    record = TransactionRecord(metadata.transactional_id, metadata)
    assert records.decode(*records.encode(record)) == record


def test_s32_the_declared_record_has_every_field_of_the_state() -> None:
    taken_over = METADATA._replace(
        partitions=frozenset({TopicPartition("b", 2), TopicPartition("b", 1), TopicPartition("a", 3)}),
        start_timestamp=1, last_update_timestamp=2, previous_producer_id=5, next_producer_id=8,
        client_transaction_version=2, next_producer_epoch=4,
    )  # fmt: skip
    assert declared_value(taken_over) == TransactionLogValue(
        producer_id=7, previous_producer_id=5, next_producer_id=8, producer_epoch=3, transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[
            TransactionLogValue.PartitionsSchema(topic="a", partition_ids=[3]),
            TransactionLogValue.PartitionsSchema(topic="b", partition_ids=[1, 2]),
        ],
        transaction_last_update_timestamp_ms=2, transaction_start_timestamp_ms=1, client_transaction_version=2,
        next_producer_epoch=4,
    )  # fmt: skip


def test_an_empty_state_has_no_list_of_partitions() -> None:
    empty = METADATA._replace(state=TransactionState.EMPTY, partitions=frozenset())
    assert value_bytes(empty) == encode_versioned(declared_value(empty), TRANSACTION_LOG_VALUE_VERSION)
    assert declared_value(empty).transaction_partitions is None


def test_long_lists_of_partitions_are_not_kept() -> None:
    _kept_list.cache_clear()
    for count in (MAX_KEPT_PARTITIONS + 1, MAX_KEPT_PARTITIONS):
        wide = METADATA._replace(partitions=frozenset(TopicPartition("t", index) for index in range(count)))
        assert value_bytes(wide) == encode_versioned(declared_value(wide), TRANSACTION_LOG_VALUE_VERSION)
    assert _kept_list.cache_info().currsize == 1


def test_a_number_that_the_message_cannot_have_is_refused() -> None:
    with pytest.raises(UnencodableMessage):
        value_bytes(METADATA._replace(producer_epoch=2**15))


def test_each_batch_is_a_buffer_of_its_own() -> None:
    first = state_batch(METADATA)
    first[0:8] = b"\xff" * 8
    assert state_batch(METADATA)[0:8] == bytes(8)
