"""DeleteRecords reports success only for deletions that are on disk."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_broker.runtime.answers import settled
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.records.delete_records import handle
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.delete_records import DeleteRecordsRequest

Topic = DeleteRecordsRequest.DeleteRecordsTopic


class FullDisk:
    def checkpoint_log_start_offsets(self) -> None:
        raise OSError(28, "No space left on device")


class LeftOut:
    """Replaces the broker's logs; writing the checkpoint omits the log, as if the log were not on disk."""

    def checkpoint_log_start_offsets(self) -> None:
        pass


class OnDisk(LeftOut):
    """Replaces the broker's logs; all of these logs count as being on disk."""


class OneLeader:
    def __init__(self, *, is_caught_up: bool = True, is_offline: bool = False) -> None:
        self.is_caught_up = is_caught_up
        self.is_offline = is_offline

    def check_online(self) -> None:
        if self.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    def leader(self, topic: str, index: int) -> Any:
        if index:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        log = SimpleNamespace(
            config=SimpleNamespace(cleanup_policy=frozenset({"delete"})),
            log_start_offset=5,
            state=SimpleNamespace(durable_start_offset=0, check_online=self.check_online),
        )
        return SimpleNamespace(
            high_watermark=10,
            high_watermark_caught_up=self.is_caught_up,
            log=log,
            is_alone=True,
            delete_records_before=lambda offset: None,
        )


@pytest.mark.parametrize("disk", [FullDisk, LeftOut])
async def test_a_failed_write_is_an_error_of_each_partition(disk: Callable[[], Any]) -> None:
    partitions = [Topic.DeleteRecordsPartition(partition_index=index, offset=5) for index in (0, 1)]
    request = DeleteRecordsRequest(topics=[Topic(name="t", partitions=partitions)], timeout_ms=1000)
    slices = Slices(ManualClock(), Tasks())
    services = SimpleNamespace(logs=disk(), replicas=OneLeader(), slices=slices)
    context: Any = SimpleNamespace(services=services, may=lambda *_: True)
    answer = await settled(handle(request, context))
    assert [result.error_code for result in answer.topics[0].partitions] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.parametrize(
    ("offset", "is_caught_up", "code"),
    [
        (11, True, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-2, False, ErrorCode.OFFSET_OUT_OF_RANGE),
        (11, False, ErrorCode.OFFSET_NOT_AVAILABLE),
        (10, False, ErrorCode.NONE),
        (-1, False, ErrorCode.OFFSET_NOT_AVAILABLE),
        (-1, True, ErrorCode.NONE),
    ],
)
async def test_a_new_leader_does_not_say_that_an_offset_is_out_of_range_before_it_knows(
    offset: int, is_caught_up: bool, code: ErrorCode
) -> None:
    """The previous leader may have acknowledged a record at the requested offset; and offset -1 means all acknowledged
    records.
    """
    partition = Topic.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[Topic(name="t", partitions=[partition])], timeout_ms=1000)
    leader = OneLeader(is_caught_up=is_caught_up)
    leader_of = leader.leader

    def durable(topic: str, index: int) -> Any:
        found = leader_of(topic, index)
        found.log.state.durable_start_offset = 5
        return found

    leader.leader = durable  # type: ignore[method-assign]
    services = SimpleNamespace(logs=OnDisk(), replicas=leader, slices=Slices(ManualClock(), Tasks()))
    context: Any = SimpleNamespace(services=services, may=lambda *_: True)
    answer = await settled(handle(request, context))
    assert answer.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize("offset", [-1, 5, 11])
async def test_a_leader_whose_log_has_failed_says_nothing_about_offsets(offset: int) -> None:
    """Its high watermark may be old, because another broker may lead the partition already."""
    partition = Topic.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[Topic(name="t", partitions=[partition])], timeout_ms=1000)
    slices = Slices(ManualClock(), Tasks())
    services = SimpleNamespace(logs=OnDisk(), replicas=OneLeader(is_offline=True), slices=slices)
    context: Any = SimpleNamespace(services=services, may=lambda *_: True)
    answer = await settled(handle(request, context))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
