"""An OffsetCommit with very many partitions is processed in steps of the group's machine and gets one response."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.runtime.answers import settled
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.groups.offset_commit import handle
from oncelog_broker.server.request.context import RequestContext
from oncelog_broker.server.request.request_chunks import PARTITIONS_PER_PART
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest

Topic = OffsetCommitRequest.OffsetCommitRequestTopic


class Runtime:
    """One group machine; `fails_at` is the number of the step that fails."""

    def __init__(self) -> None:
        self.machine = GroupMachine(GroupConfig(), lambda: 1, lambda: "id")
        self.records: list[int] = []
        self.fails_at = -1

    def write(self, key: str, operation: Any, failed: Any) -> Any:
        replies: list[Any] = []
        if len(self.records) == self.fails_at:
            return failed(KafkaError(ErrorCode.ILLEGAL_GENERATION))
        effects = operation(self.machine, replies)
        self.records.append(len(effects.records))
        ((_, response),) = effects.replies
        return response


def topic(name: str, partitions: int) -> Topic:
    wanted = Topic.OffsetCommitRequestPartition
    indexes = range(partitions)
    return Topic(
        name=name,
        partitions=[wanted(partition_index=n, committed_offset=n, committed_metadata="") for n in indexes],
    )


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


@pytest.fixture
def context(runtime: Runtime) -> Any:
    services: Any = SimpleNamespace(
        authorizer=None,
        image=SimpleNamespace(has_partition=lambda topic, partition: topic in ("a", "b", "small")),
        groups=SimpleNamespace(runtime=runtime),
        slices=Slices(ManualClock(), Tasks()),
    )
    return RequestContext(services, None, 8, 9, 0, None)  # type: ignore[arg-type]


async def committed(context: Any, *topics: Topic) -> dict[str, list[int]]:
    """Commit the offsets; return topic -> error codes of its partitions."""
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=list(topics), retention_time_ms=-1
    )
    response = await settled(handle(request, context))
    for answer in response.topics:
        assert [each.partition_index for each in answer.partitions] == list(range(len(answer.partitions)))
    return {answer.name: [each.error_code for each in answer.partitions] for answer in response.topics}


async def test_an_ordinary_commit_is_one_step(runtime: Runtime, context: Any) -> None:
    assert await committed(context, topic("a", 2), topic("b", 1)) == {"a": [0, 0], "b": [0]}
    assert runtime.records == [3]


async def test_a_large_commit_takes_several_steps(runtime: Runtime, context: Any) -> None:
    many = 2 * PARTITIONS_PER_PART + 1
    codes = await committed(context, topic("a", many), topic("gone", 1), topic("b", 1))
    assert codes == {"a": [0] * many, "gone": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], "b": [0]}
    assert max(runtime.records) <= PARTITIONS_PER_PART
    assert sum(runtime.records) == many + 1


async def test_chunks_after_a_change_of_the_group_are_refused(runtime: Runtime, context: Any) -> None:
    runtime.fails_at = 1
    codes = await committed(context, topic("a", 2 * PARTITIONS_PER_PART))
    refused = [ErrorCode.ILLEGAL_GENERATION] * PARTITIONS_PER_PART
    assert codes == {"a": [0] * PARTITIONS_PER_PART + refused}
