"""A coordinator appends one batch with acks=all, and translates append errors into coordinator error codes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_broker.coordinator.appending import RECORD_OVERHEAD, append_records, divided
from oncelog_broker.coordinator.effects import Effects, Encoded
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import HEADER_SIZE, RecordBatch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import read_records

RECORDS = [Encoded(b"k", b"v"), Encoded(b"k", None)]


def append(error: ErrorCode | None = None, effects: Effects | None = None) -> tuple[int, RecordBatch | None]:
    """Append records. Returns the base offset and the appended batch."""
    appended: list[RecordBatch] = []

    def append_batch(records: memoryview, *, required_acks: int, origin: Any) -> tuple[int, int]:
        assert required_acks == -1
        if error is not None:
            raise KafkaError(error, "as the test wants it")
        appended.append(RecordBatch(records))
        return 42, -1

    partition: Any = SimpleNamespace(append=append_batch, log=SimpleNamespace(name="__consumer_offsets-0"))
    offset = append_records(partition, RECORDS, effects or Effects(), 1000, Compression.NONE)
    return offset, appended[0]


def test_the_records_of_a_step_are_one_batch() -> None:
    offset, batch = append()
    assert offset == 42
    assert batch is not None
    assert [(record.key, record.value, record.timestamp) for record in read_records(batch)] == [
        (b"k", b"v", 1000),
        (b"k", None, 1000),
    ]
    assert not batch.is_transactional


def test_records_of_a_transaction_bear_its_producer() -> None:
    effects = Effects()
    effects.producer = (7, 3)
    _, batch = append(effects=effects)
    assert batch is not None
    assert (batch.producer_id, batch.producer_epoch, batch.is_transactional) == (7, 3, True)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_errors_of_the_log_become_coordinator_error_codes(error: ErrorCode, told: ErrorCode) -> None:
    with pytest.raises(KafkaError, match="as the test wants it") as refused:
        append(error)
    assert refused.value.code is told


def test_an_oversized_record_has_its_own_error_code_in_each_api() -> None:
    effects = Effects()
    effects.too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    with pytest.raises(KafkaError) as refused:
        append(ErrorCode.MESSAGE_TOO_LARGE, effects)
    assert refused.value.code is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_many_records_are_divided_by_size() -> None:
    record = Encoded(b"k" * 10, b"v" * 90)
    room_for_two = HEADER_SIZE + 2 * (RECORD_OVERHEAD + 100)
    assert divided([record] * 5, room_for_two) == [2, 2, 1]
    assert divided([Encoded(b"k" * 10_000, None), record], room_for_two) == [1, 1], "one that is larger stands alone"
    assert divided([], room_for_two) == []
