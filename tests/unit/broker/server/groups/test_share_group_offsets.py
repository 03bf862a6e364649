"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets, and DeleteGroups for a share group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.handlers import answered, asked, image_with, topic_id
from tests.support.memory_peers import MemoryPeers

from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.coordinator.share.share_state import NOT_SET, ShareState
from oncelog_broker.metadata.topic_names import SHARE_GROUP_STATE
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.groups import (
    alter_share_group_offsets,
    delete_groups,
    delete_share_group_offsets,
    describe_share_group_offsets,
)
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from oncelog_protocol.messages.delete_groups import DeleteGroupsRequest
from oncelog_protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from oncelog_protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from oncelog_protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

T, U = topic_id("t"), topic_id("u")
Asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
Altered = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class States:
    """Replaces ShareGroupStates. Partition 0 of "t" has start offset 10, and 3 records after it are acknowledged;
    `error` makes all requests fail.
    """

    def __init__(self) -> None:
        self.known: dict[ShareKey, Any] = {ShareKey("g", T, 0): ShareState(1, 4, 10, 3)}
        self.error: KafkaError | None = None
        self.altered: Any = None

    async def describe(self, group_id: str, wanted: Any) -> Any:
        if wanted is None:
            return self.error or dict(self.known)
        keys = [ShareKey(group_id, topic, partition) for topic, of in wanted.items() for partition in of]
        return self.error or {key: self.known.get(key, ShareState(0, 0, NOT_SET)) for key in keys}

    async def alter(self, group_id: str, starts: Any) -> Any:
        self.altered = starts
        return self.error or {ShareKey("g", T, 1): KafkaError(ErrorCode.NOT_COORDINATOR)}

    async def delete_offsets(self, group_id: str, topic_ids: Any) -> Any:
        return self.error or {topic: None for topic in topic_ids if topic == T}

    def is_share_group(self, group_id: str) -> bool:
        return True

    async def delete_group(self, group_id: str) -> KafkaError | None:
        return self.error


class Offsets:
    """Sends requests. This broker leads the partitions of "t", which end at offset 20; broker 2 leads those of "u",
    which end at 30.
    """

    def __init__(self) -> None:
        self.states, self.peers = States(), MemoryPeers()
        self.led = SimpleNamespace(
            high_watermark=20,
            high_watermark_caught_up=True,
            is_in_doubt=False,
            log=SimpleNamespace(is_offline=False),
        )
        self.image = image_with("t", SHARE_GROUP_STATE).with_topics(image_with("u", leader=2).topics.values())
        self.peers.handlers[2] = self.list_offsets

    def led_partition(self, topic: str, index: int) -> Any:
        return self.led if topic == "t" else None

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topic = ListOffsetsResponse.ListOffsetsTopicResponse
        return ListOffsetsResponse(
            topics=[
                topic(
                    name=asked.name,
                    partitions=[
                        topic.ListOffsetsPartitionResponse(
                            partition_index=each.partition_index, error_code=0, offset=30
                        )
                        for each in asked.partitions
                    ],
                )
                for asked in request.topics
            ]
        )

    async def ask(self, handler: Any, request: Any, api: ApiKey, version: int = 0, refused: Any = ()) -> Any:
        context = asked(
            api,
            version,
            refused=refused,
            image=self.image,
            groups=SimpleNamespace(share=self.states),
            replicas=self,
            peers=self.peers,
        )
        answer = await answered(handler.handle, request, context)
        await context.services.tasks.close()
        return answer

    async def describe(self, topics: Any = None, version: int = 1, refused: Any = ()) -> Any:
        named = (
            None
            if topics is None
            else [
                Asked.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
                for name, partitions in topics.items()
            ]
        )
        request = DescribeShareGroupOffsetsRequest(groups=[Asked(group_id="g", topics=named)])
        answer = await self.ask(
            describe_share_group_offsets, request, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, refused
        )
        (group,) = answer.groups
        return group


@pytest.fixture
async def offsets() -> AsyncIterator[Offsets]:
    yield Offsets()


def shown(group: Any) -> list[tuple[str, int, int, int, int]]:
    return [
        (topic.topic_name, each.partition_index, each.start_offset, each.lag, each.error_code)
        for topic in group.topics
        for each in topic.partitions
    ]


async def test_start_offsets_and_the_lag(offsets: Offsets) -> None:
    assert shown(await offsets.describe()) == [("t", 0, 10, 7, 0)]
    assert shown(await offsets.describe(version=0)) == [("t", 0, 10, -1, 0)]
    offsets.states.known[ShareKey("g", U, 1)] = ShareState(1, 4, 25)
    assert shown(await offsets.describe({"u": [1], "t": [1], "?": [0]})) == [
        ("?", 0, -1, -1, MISSING),
        ("u", 1, 25, 5, 0),
        ("t", 1, -1, -1, 0),
    ]
    offsets.peers.handlers.clear()
    assert shown(await offsets.describe({"u": [1]})) == [("u", 1, 25, -1, 0)], "nobody says where it ends"


async def test_the_lag_is_unknown_while_the_high_watermark_of_a_new_leader_has_not_caught_up(offsets: Offsets) -> None:
    offsets.led.high_watermark, offsets.led.high_watermark_caught_up = 10, False
    assert shown(await offsets.describe()) == [("t", 0, 10, -1, 0)], "a lag of 0 would hide the records up to offset 20"
    offsets.led.high_watermark, offsets.led.high_watermark_caught_up = 20, True
    assert shown(await offsets.describe()) == [("t", 0, 10, 7, 0)]


@pytest.mark.parametrize(("is_in_doubt", "is_offline"), [(True, False), (False, True)])
async def test_the_lag_is_unknown_while_the_leader_may_have_a_successor(
    offsets: Offsets, is_in_doubt: bool, is_offline: bool
) -> None:
    offsets.led.is_in_doubt, offsets.led.log.is_offline = is_in_doubt, is_offline
    assert shown(await offsets.describe()) == [("t", 0, 10, -1, 0)]


async def test_errors_of_a_description(offsets: Offsets) -> None:
    offsets.states.known[ShareKey("g", T, 1)] = KafkaError(ErrorCode.NOT_COORDINATOR)
    assert ("t", 1, -1, -1, ErrorCode.NOT_COORDINATOR) in shown(await offsets.describe())
    offsets.states.error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert (await offsets.describe()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_rights_to_describe(offsets: Offsets) -> None:
    group = await offsets.describe(refused={(rules.DESCRIBE_SHARE_OFFSETS_GROUP, "g")})
    assert group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    hidden = {(rules.DESCRIBE_SHARE_OFFSETS, "t")}
    assert shown(await offsets.describe(refused=hidden)) == []
    denied = shown(await offsets.describe({"t": [0]}, refused=hidden))
    assert denied == [("t", 0, -1, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]


async def alter(offsets: Offsets, topics: dict[str, dict[int, int]], refused: Any = ()) -> Any:
    request = AlterShareGroupOffsetsRequest(
        group_id="g",
        topics=[
            Altered(
                topic_name=name,
                partitions=[
                    Altered.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in starts.items()
                ],
            )
            for name, starts in topics.items()
        ],
    )
    return await offsets.ask(alter_share_group_offsets, request, ApiKey.ALTER_SHARE_GROUP_OFFSETS, refused=refused)


def altered(answer: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in answer.responses
        for each in topic.partitions
    }


async def test_offsets_are_altered_of_partitions_that_exist(offsets: Offsets) -> None:
    answer = await alter(offsets, {"t": {0: 5, 1: 6, 9: 1}, "u": {0: -1}, "?": {0: 0}})
    assert altered(answer) == {
        ("t", 0): 0,
        ("t", 1): ErrorCode.NOT_COORDINATOR,
        ("t", 9): MISSING,
        ("u", 0): ErrorCode.INVALID_REQUEST,
        ("?", 0): MISSING,
    }
    assert offsets.states.altered == {T: {0: 5, 1: 6}}
    offsets.states.error = KafkaError(ErrorCode.NON_EMPTY_GROUP)
    assert (await alter(offsets, {"t": {0: 5}})).error_code == ErrorCode.NON_EMPTY_GROUP


async def test_rights_to_alter(offsets: Offsets) -> None:
    answer = await alter(offsets, {"t": {0: 5}}, {(rules.ALTER_SHARE_OFFSETS_GROUP, "g")})
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    answer = await alter(offsets, {"t": {0: 5}}, {(rules.ALTER_SHARE_OFFSETS, "t")})
    assert altered(answer) == {("t", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert offsets.states.altered is None


async def delete(offsets: Offsets, *names: str, refused: Any = (), group_id: str = "g") -> Any:
    topic = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
    request = DeleteShareGroupOffsetsRequest(group_id=group_id, topics=[topic(topic_name=name) for name in names])
    return await offsets.ask(delete_share_group_offsets, request, ApiKey.DELETE_SHARE_GROUP_OFFSETS, refused=refused)


async def test_offsets_of_topics_are_deleted(offsets: Offsets) -> None:
    answer = await delete(offsets, "t", "u", "?", "t")
    assert {topic.topic_name: topic.error_code for topic in answer.responses} == {"t": 0, "u": MISSING, "?": MISSING}
    answer = await delete(offsets, "t", refused={(rules.DELETE_SHARE_OFFSETS, "t")})
    assert [topic.error_code for topic in answer.responses] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert (await delete(offsets, "t", group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
    answer = await delete(offsets, "t", refused={(rules.DELETE_SHARE_OFFSETS_GROUP, "g")})
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    offsets.states.error = KafkaError(ErrorCode.NON_EMPTY_GROUP)
    assert (await delete(offsets, "t")).error_code == ErrorCode.NON_EMPTY_GROUP


async def test_a_share_group_is_deleted_with_its_state(offsets: Offsets) -> None:
    request = DeleteGroupsRequest(groups_names=["g"])
    answer = await offsets.ask(delete_groups, request, ApiKey.DELETE_GROUPS, 2)
    assert [result.error_code for result in answer.results] == [ErrorCode.NONE]
    offsets.states.error = KafkaError(ErrorCode.NON_EMPTY_GROUP)
    answer = await offsets.ask(delete_groups, request, ApiKey.DELETE_GROUPS, 2)
    assert [result.error_code for result in answer.results] == [ErrorCode.NON_EMPTY_GROUP]
