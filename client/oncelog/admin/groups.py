"""Administration of consumer groups: `admin.groups`.

Requests for a group are sent to its coordinator, and sent again if the coordinator has moved, or is still loading its
state. As in `admin`, a call for a single item raises the error of that item, and a call for several items raises
PartialFailure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from oncelog.admin.calls import Calls
from oncelog.admin.coordinators import MOVED, Coordinators
from oncelog.admin.items import the_one
from oncelog.cluster import NO_NODE, TopicPartition
from oncelog.errors import ErrorCode, KafkaError, UnsupportedVersion, error_for
from oncelog.group_offsets import OffsetAndMetadata
from oncelog_protocol.consumer_protocol import CONSUMER_PROTOCOL, ConsumerProtocolAssignment, decode_versioned
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.messages.find_coordinator import CoordinatorType

NO_OFFSET: Final = -1
DEAD: Final = "Dead"
"""The state that brokers without DescribeGroups v6 report for a group that does not exist."""
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
STREAMS: Final = "streams"
SHARE: Final = "share"
STICKY: Final = "sticky"
"""The name of the only assignor that streams groups have."""
UNSTABLE: Final = MOVED | {ErrorCode.UNSTABLE_OFFSET_COMMIT}


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group in a list of groups. `protocol_type` is "consumer", or "" for a group that only commits offsets; `state`
    is "" if the broker is too old to report it. `group_type` is the protocol of the group: "classic", "consumer"
    (KIP-848), "share" (KIP-932) or "streams" (KIP-1071); "" if the broker is too old to report it.
    """

    group_id: str
    protocol_type: str
    state: str
    group_type: str = ""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A group member; `assignment` is empty while a classic group rebalances, and for members that are not consumers.
    In a group of the consumer protocol, `assignment` is the current assignment, `target` the target assignment, and
    `epoch` the epoch of the member. In a streams group, `assignment` and `target` have the partitions that the active
    tasks of the member read; `active_tasks` and `standby_tasks` name the tasks, such as "0_3": subtopology 0, partition
    3.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    active_tasks: tuple[str, ...] | None = None
    standby_tasks: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A consumer group as its coordinator describes it.

    `state` of a classic group is PreparingRebalance, CompletingRebalance, Stable, Empty or Dead; `state` of a group of
    the consumer protocol is Assigning, Reconciling, Stable or Empty. A streams group may also be NotReady: topics of
    its topology are missing. `protocol` is the assignor that the group chose, or that the broker uses. `coordinator_id`
    is the id of the broker that responded. `group_type` is "classic", "consumer" or "streams". In a group of the
    consumer or streams protocol, `epoch` is the group epoch: it grows with each change that can affect the assignment.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    coordinator_id: int = NO_NODE
    group_type: str = CLASSIC
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset of a group: `offset` is the offset of the next record that the group will read."""

    offset: int
    metadata: str
    leader_epoch: int


class GroupAdmin:
    """Programs use this class as `admin.groups`."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._coordinators = Coordinators(calls, CoordinatorType.GROUP)

    async def list(self) -> list[ListedGroup]:
        """Return the groups of all brokers, sorted by id. Raises KafkaError."""
        from oncelog_protocol.messages.list_groups import ListGroupsRequest

        async def ask(node_id: int) -> Any:
            response = await self._calls.send_to(node_id, ListGroupsRequest())
            if response.error_code:
                raise error_for(response.error_code)
            return response

        found = {
            group.group_id: ListedGroup(group.group_id, group.protocol_type, group.group_state, group.group_type)
            for response in (await self._coordinators.of_all_brokers(ask)).values()
            for group in response.groups
        }
        return [found[group_id] for group_id in sorted(found)]

    async def describe(self, group_ids: Iterable[str]) -> dict[str, DescribedGroup]:
        """Return the state and the members of groups. For a group that does not exist, brokers with DescribeGroups v6
        or later raise an error; older brokers report the state Dead. Raises KafkaError, PartialFailure.
        """
        from oncelog_protocol.messages.describe_groups import DescribeGroupsRequest

        async def ask(group_id: str, node_id: int) -> DescribedGroup:
            response = await self._calls.send_to(node_id, DescribeGroupsRequest(groups=[group_id]))
            group = the_one(response.groups, group_id)
            if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or group.group_state == DEAD:
                found = await self._of_newer_protocol(group_id, node_id)
                if found is not None:
                    return found
            if group.error_code:
                raise error_for(group.error_code, f"{group_id}: {group.error_message or ''}")
            members = tuple(
                GroupMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    _assignment(member.member_assignment) if group.protocol_type == CONSUMER_PROTOCOL else (),
                )
                for member in group.members
            )
            return DescribedGroup(
                group_id, group.group_state, group.protocol_type, group.protocol_data, members, node_id
            )

        return await self._coordinators.each(group_ids, ask)

    async def _of_newer_protocol(self, group_id: str, node_id: int) -> DescribedGroup | None:
        """Return the group if it uses the consumer or the streams protocol; None if the broker knows no group of this
        name with either protocol. Raises KafkaError.
        """
        found = await self._of_consumer_protocol(group_id, node_id)
        return found or await self._of_streams_protocol(group_id, node_id)

    async def _of_streams_protocol(self, group_id: str, node_id: int) -> DescribedGroup | None:
        """Return the group as the streams protocol describes it; None if the broker does not know the group, or does
        not support the protocol. Raises KafkaError.
        """
        from oncelog.admin import streams_groups

        found = await streams_groups.ask(self._calls, group_id, node_id)
        if found is None:
            return None
        group, sources = found
        members = tuple(
            GroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                streams_groups.partitions_of(member.assignment.active_tasks, sources),
                streams_groups.partitions_of(member.target_assignment.active_tasks, sources),
                member.member_epoch,
                streams_groups.names_of(member.assignment.active_tasks),
                streams_groups.names_of(member.assignment.standby_tasks),
            )
            for member in group.members
        )
        return DescribedGroup(
            group_id, group.group_state, STREAMS, STICKY, members, node_id, STREAMS, group.group_epoch
        )

    async def _of_consumer_protocol(self, group_id: str, node_id: int) -> DescribedGroup | None:
        """Return the group as the consumer protocol describes it; None if the broker does not know the group, or does
        not support the protocol. Raises KafkaError.
        """
        from oncelog_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest

        request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
        try:
            response = await self._calls.send_to(node_id, request)
        except UnsupportedVersion:
            return None
        group = the_one(response.groups, group_id)
        if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            return None
        if group.error_code:
            raise error_for(group.error_code, f"{group_id}: {group.error_message or ''}")
        members = tuple(
            GroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                _partitions(member.assignment),
                _partitions(member.target_assignment),
                member.member_epoch,
            )
            for member in group.members
        )
        return DescribedGroup(
            group_id,
            group.group_state,
            CONSUMER_PROTOCOL,
            group.assignor_name,
            members,
            node_id,
            CONSUMER,
            group.group_epoch,
        )

    async def delete(self, group_ids: Iterable[str]) -> None:
        """Delete groups without members, and their offsets. Raises KafkaError (NON_EMPTY_GROUP), PartialFailure."""
        from oncelog_protocol.messages.delete_groups import DeleteGroupsRequest

        async def ask(group_id: str, node_id: int) -> None:
            response = await self._calls.send_to(node_id, DeleteGroupsRequest(groups_names=[group_id]))
            _check(the_one(response.results, group_id).error_code, group_id)

        await self._coordinators.each(group_ids, ask)

    async def offsets(self, group_id: str, *, require_stable: bool = False) -> dict[TopicPartition, CommittedOffset]:
        """Return all committed offsets of the group. `require_stable` waits until transactions with pending offsets
        have ended (KIP-447, S37). Raises KafkaError, for example UNSTABLE_OFFSET_COMMIT if these transactions do not
        end within default.api.timeout.ms.
        """
        from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest

        async def ask(group_id: str, node_id: int) -> dict[TopicPartition, CommittedOffset]:
            wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=None)
            request = OffsetFetchRequest(group_id=group_id, topics=None, groups=[wanted], require_stable=require_stable)
            response = await self._calls.send_to(node_id, request)
            answer: Any = response.groups[0] if response.groups else response
            _check(answer.error_code, group_id)
            if require_stable:
                _check_partitions(answer)
            return {
                TopicPartition(topic.name, partition.partition_index): CommittedOffset(
                    partition.committed_offset, partition.metadata or "", partition.committed_leader_epoch
                )
                for topic in answer.topics
                for partition in topic.partitions
                if not partition.error_code and partition.committed_offset != NO_OFFSET
            }

        return (await self._coordinators.each([group_id], ask, UNSTABLE))[group_id]

    async def unstable_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions with a pending offset of an open transaction; members that fetch a pending offset wait
        (KIP-447, S37). `admin.pending_offsets` finds the transaction. The result is empty with brokers older than Kafka
        2.5. Raises KafkaError.
        """
        from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest

        group_type = OffsetFetchRequest.OffsetFetchRequestGroup
        indexes: dict[str, list[int]] = {}
        for topic, index in partitions:
            indexes.setdefault(topic, []).append(index)

        async def ask(group_id: str, node_id: int) -> frozenset[TopicPartition]:
            topic_type = OffsetFetchRequest.OffsetFetchRequestTopic
            request = OffsetFetchRequest(
                group_id=group_id,
                topics=[topic_type(name=name, partition_indexes=part) for name, part in indexes.items()],
                groups=[
                    group_type(
                        group_id=group_id,
                        topics=[
                            group_type.OffsetFetchRequestTopics(name=name, partition_indexes=part)
                            for name, part in indexes.items()
                        ],
                    )
                ],
                require_stable=True,
            )
            response = await self._calls.send_to(node_id, request)
            answer: Any = response.groups[0] if response.groups else response
            _check(answer.error_code, group_id)
            return frozenset(
                TopicPartition(topic.name, partition.partition_index)
                for topic in answer.topics
                for partition in topic.partitions
                if partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
            )

        return (await self._coordinators.each([group_id], ask))[group_id] if indexes else frozenset()

    async def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        """Set the committed offsets of a group without members.

        Raises KafkaError (UNKNOWN_MEMBER_ID while the group has members), PartialFailure.
        """
        from oncelog_protocol.messages.offset_commit import OffsetCommitRequest

        topic_type = OffsetCommitRequest.OffsetCommitRequestTopic

        async def ask(group_id: str, node_id: int) -> None:
            topics = {name: topic_type(name=name, partitions=[]) for name, _ in offsets}
            for (name, index), each in offsets.items():
                offset, metadata, leader_epoch = OffsetAndMetadata(each) if isinstance(each, int) else each
                partition = topic_type.OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    committed_metadata=metadata,
                )
                topics[name].partitions.append(partition)
            request = OffsetCommitRequest(group_id=group_id, member_id="", topics=list(topics.values()))
            try:
                _check_partitions(await self._calls.send_to(node_id, request))
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                    raise
                # While the group has members, the broker rejects a commit from a non-member with UNKNOWN_MEMBER_ID; the
                # default message of that error does not say that the group's members are the cause.
                why = "the group has members, and its offsets can only be set while it has none"
                raise error_for(error.code, f"{group_id}: {why}") from error

        if offsets:
            await self._coordinators.each([group_id], ask)

    async def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete committed offsets of topics that the group does not read at present. Raises KafkaError."""
        from oncelog_protocol.messages.offset_delete import OffsetDeleteRequest

        topic_type = OffsetDeleteRequest.OffsetDeleteRequestTopic
        wanted = list(partitions)

        async def ask(group_id: str, node_id: int) -> None:
            topics = {name: topic_type(name=name, partitions=[]) for name, _ in wanted}
            for name, index in wanted:
                topics[name].partitions.append(topic_type.OffsetDeleteRequestPartition(partition_index=index))
            response = await self._calls.send_to(
                node_id, OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))
            )
            _check(response.error_code, group_id)
            _check_partitions(response)

        await self._coordinators.each([group_id], ask)


def _check(error_code: int, subject: str) -> None:
    if error_code:
        raise error_for(error_code, f"{subject}: {ErrorCode.of(error_code).meaning}")


def _check_partitions(response: Any) -> None:
    """Raise the first error among the partitions of a response, if there is one."""
    for topic in response.topics:
        for partition in topic.partitions:
            _check(partition.error_code, f"{topic.name}-{partition.partition_index}")


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions
    )


def _assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of a member's assignment (version, then partitions). The result is empty if the assignment
    is missing or unreadable.
    """
    try:
        assigned = decode_versioned(ConsumerProtocolAssignment, data)
    except MalformedMessage:
        return ()
    return tuple(
        TopicPartition(topic.topic, index) for topic in assigned.assigned_partitions for index in topic.partitions
    )
