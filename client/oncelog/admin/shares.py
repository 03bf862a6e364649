"""Administration of share groups (KIP-932): `admin.shares`.

Requests for a group are sent to its coordinator, and sent again if the coordinator has moved, or is still loading its
state. `admin.groups` lists and deletes share groups like groups of all other protocols.
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
    """A member of a share group; `assignment` contains the partitions that the member shares with other members."""

    member_id: str
    client_id: str
    client_host: str
    epoch: int
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DescribedShareGroup:
    """A share group as its coordinator describes it; `state` is Stable or Empty. `epoch` is the group epoch: it grows
    with each change that can affect the assignment.
    """

    group_id: str
    state: str
    epoch: int
    assignor: str
    members: tuple[ShareGroupMember, ...]
    coordinator_id: int = NO_NODE


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """The progress of a group in a partition: all records below `start_offset` are acknowledged or archived; None means
    that the group has not read the partition yet. `lag` is the number of records that are neither acknowledged nor
    archived; None means unknown.
    """

    start_offset: int | None
    lag: int | None
    leader_epoch: int


class ShareAdmin:
    """Programs use this class as `admin.shares`."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._coordinators = Coordinators(calls, CoordinatorType.GROUP)

    async def describe(self, group_ids: Iterable[str]) -> dict[str, DescribedShareGroup]:
        """Return the state and the members of share groups. Raises KafkaError (GROUP_ID_NOT_FOUND, also for a group
        of another protocol), PartialFailure."""
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
        """Return the progress of the group in each partition for which the group has state. Raises KafkaError."""
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
        """Set the start offsets of a group without members. The group gets all records from these offsets on, including
        records that it has acknowledged before. Raises KafkaError (NON_EMPTY_GROUP).
        """
        from oncelog_protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest

        topic_type = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
        topics = {name: topic_type(topic_name=name, partitions=[]) for name, _ in offsets}
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
        """Delete the progress of a group without members in these topics. Raises KafkaError (NON_EMPTY_GROUP)."""
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
    """Raise KafkaError if the response has an error."""
    if answer.error_code:
        message = answer.error_message or ErrorCode.of(answer.error_code).meaning
        raise error_for(answer.error_code, f"{subject}: {message}")
