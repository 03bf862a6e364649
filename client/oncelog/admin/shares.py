"""Administration of share groups (KIP-932): `admin.shares`.

Each group is requested from its coordinator, again if that has moved or is loading. Groups are listed and deleted by
`admin.groups`, as those of all protocols.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from oncelog.admin.calls import Calls
from oncelog.admin.coordinators import Coordinators
from oncelog.admin.items import the_one
from oncelog.cluster import NO_NODE, TopicPartition
from oncelog.errors import ErrorCode, error_for
from oncelog_protocol.messages.find_coordinator import CoordinatorType

NOT_SET = -1


@dataclass(frozen=True, slots=True)
class ShareGroupMember:
    """One member; `assignment` are the partitions that it reads together with others."""

    member_id: str
    client_id: str
    client_host: str
    epoch: int
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DescribedShareGroup:
    """A share group as its coordinator describes it; `state` is Stable or Empty. `epoch` says how often something has
    changed that its assignment depends on."""

    group_id: str
    state: str
    epoch: int
    assignor: str
    members: tuple[ShareGroupMember, ...]
    coordinator_id: int = NO_NODE


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """How far a group is in a partition: all records below `start_offset` are done; None: it has not begun. `lag`
    counts the records that are not done yet; None if it is not known."""

    start_offset: int | None
    lag: int | None
    leader_epoch: int


class ShareAdmin:
    """Use it as `admin.shares`."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._coordinators = Coordinators(calls, CoordinatorType.GROUP)

    async def describe(self, group_ids: Iterable[str]) -> dict[str, DescribedShareGroup]:
        """State and members. Raises KafkaError (GROUP_ID_NOT_FOUND, also for a group of another protocol),
        PartialFailure."""
        from oncelog_protocol.messages.share_group_describe import ShareGroupDescribeRequest

        async def ask(group_id: str, node_id: int) -> DescribedShareGroup:
            request = ShareGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
            response = await self._calls.send_to(node_id, request)
            group = the_one(response.groups, group_id)
            _check(group, group_id)
            members = tuple(
                ShareGroupMember(
                    member.member_id,
                    member.client_id,
                    member.client_host,
                    member.member_epoch,
                    tuple(member.subscribed_topic_names),
                    tuple(
                        TopicPartition(topic.topic_name, index)
                        for topic in member.assignment.topic_partitions
                        for index in topic.partitions
                    ),
                )
                for member in group.members
            )
            return DescribedShareGroup(
                group_id, group.group_state, group.group_epoch, group.assignor_name, members, node_id
            )

        return await self._coordinators.each(group_ids, ask)

    async def offsets(self, group_id: str) -> dict[TopicPartition, ShareOffset]:
        """How far the group is in each partition that it has state of. Raises KafkaError."""
        from oncelog_protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest

        wanted = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)

        async def ask(group_id: str, node_id: int) -> dict[TopicPartition, ShareOffset]:
            response = await self._calls.send_to(node_id, DescribeShareGroupOffsetsRequest(groups=[wanted]))
            group = the_one(response.groups, group_id)
            _check(group, group_id)
            found = {}
            for topic in group.topics:
                for partition in topic.partitions:
                    where = TopicPartition(topic.topic_name, partition.partition_index)
                    _check(partition, f"{group_id}: {where}")
                    start, lag = partition.start_offset, partition.lag
                    found[where] = ShareOffset(
                        None if start == NOT_SET else start, None if lag < 0 else lag, partition.leader_epoch
                    )
            return found

        return (await self._coordinators.each([group_id], ask))[group_id]

    async def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Begin partitions anew at these offsets, for a group without members: what was acknowledged after them is
        delivered again. Raises KafkaError (NON_EMPTY_GROUP)."""
        from oncelog_protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest

        topic_type = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
        topics = {name: topic_type(topic_name=name, partitions=[]) for name in {key.topic for key in offsets}}
        for (name, index), offset in offsets.items():
            topics[name].partitions.append(
                topic_type.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
            )

        async def ask(group_id: str, node_id: int) -> None:
            request = AlterShareGroupOffsetsRequest(group_id=group_id, topics=list(topics.values()))
            response = await self._calls.send_to(node_id, request)
            _check(response, group_id)
            for topic in response.responses:
                for partition in topic.partitions:
                    _check(partition, f"{topic.topic_name}-{partition.partition_index}")

        if topics:
            await self._coordinators.each([group_id], ask)

    async def delete_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Forget how far a group without members is in these topics. Raises KafkaError (NON_EMPTY_GROUP)."""
        from oncelog_protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest

        topic_type = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
        wanted = [topic_type(topic_name=name) for name in dict.fromkeys(topics)]

        async def ask(group_id: str, node_id: int) -> None:
            request = DeleteShareGroupOffsetsRequest(group_id=group_id, topics=wanted)
            response = await self._calls.send_to(node_id, request)
            _check(response, group_id)
            for topic in response.responses:
                _check(topic, topic.topic_name)

        if wanted:
            await self._coordinators.each([group_id], ask)


def _check(answer: Any, subject: str) -> None:
    """Raises KafkaError."""
    if answer.error_code:
        message = answer.error_message or ErrorCode.of(answer.error_code).meaning
        raise error_for(answer.error_code, f"{subject}: {message}")
