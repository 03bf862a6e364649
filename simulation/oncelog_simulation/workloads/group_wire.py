"""Sends requests of group members as no client library would send them: with any generation and member id, also in
transactions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.messages.heartbeat import HeartbeatRequest
from oncelog_protocol.messages.join_group import JoinGroupRequest
from oncelog_protocol.messages.leave_group import LeaveGroupRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.sync_group import SyncGroupRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_simulation.workloads.wire import Wire, code
from oncelog_testing.history.events import Place

T = TypeVar("T")

JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT, TXN_COMMIT = 5, 3, 3, 3, 7, 3
TXN_COMMIT_V2: Final = 5
PROTOCOL: Final = "range"


class Membership(NamedTuple):
    """The identity of a member in its requests."""

    member_id: str
    generation: int
    instance: str | None = None
    is_leader: bool = False
    members: tuple[str, ...] = ()
    """The ids of all members of the generation; empty if this member is not the group leader."""


NOBODY: Final = Membership("", -1)


class GroupWire:
    """Sends requests to the coordinator of a group, each of them once."""

    def __init__(self, wire: Wire, group: str) -> None:
        self._wire = wire
        self._group = group

    async def decided(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat the request until a coordinator has accepted or refused it (`Wire.until_decided`)."""
        return await self._wire.until_decided(ask, code)

    async def join(
        self, member_id: str, instance: str | None, session_ms: int, rebalance_ms: int
    ) -> tuple[ErrorCode, Membership]:
        """Send JoinGroup, and wait for the other members. If the response is MEMBER_ID_REQUIRED, it contains the member
        id for the next JoinGroup.
        """
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=PROTOCOL, metadata=b"\0\0\0\0\0\0\0\0\0\0")],
        )
        answer = await self._wire.to_coordinator(self._group, request, JOIN, CoordinatorType.GROUP)
        members = tuple(member.member_id for member in answer.members)
        is_leader = answer.leader == answer.member_id and answer.error_code == 0
        joined = Membership(answer.member_id, answer.generation_id, instance, is_leader, members)
        return ErrorCode.of(answer.error_code), joined

    async def sync(self, member: Membership) -> ErrorCode:
        """Send SyncGroup; the leader gives every member an empty assignment."""
        assigned = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance,
            assignments=[assigned(member_id=each, assignment=b"\0\0\0\0\0\0\0\0\0\0") for each in member.members],
        )
        answer = await self._wire.to_coordinator(self._group, request, SYNC, CoordinatorType.GROUP)
        return ErrorCode.of(answer.error_code)

    async def heartbeat(self, member: Membership) -> ErrorCode:
        """Send Heartbeat for one member."""
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance,
        )
        answer = await self._wire.to_coordinator(self._group, request, HEARTBEAT, CoordinatorType.GROUP)
        return ErrorCode.of(answer.error_code)

    async def leave(self, member: Membership) -> ErrorCode:
        """Send LeaveGroup for one member."""
        identity = LeaveGroupRequest.MemberIdentity(member_id=member.member_id, group_instance_id=member.instance)
        request = LeaveGroupRequest(group_id=self._group, members=[identity])
        answer = await self._wire.to_coordinator(self._group, request, LEAVE, CoordinatorType.GROUP)
        return ErrorCode.of(answer.error_code or answer.members[0].error_code)

    async def commit(self, member: Membership, offsets: Mapping[Place, int]) -> ErrorCode:
        """Send OffsetCommit for offsets of one topic; returns the first error."""
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        partition = topic.OffsetCommitRequestPartition
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance,
            topics=[
                topic(
                    name=place.topic,
                    partitions=[partition(partition_index=place.index, committed_offset=offset, committed_metadata="")],
                )
                for place, offset in offsets.items()
            ],
        )
        answer = await self._wire.to_coordinator(self._group, request, COMMIT, CoordinatorType.GROUP)
        codes = [part.error_code for each in answer.topics for part in each.partitions]
        return ErrorCode.of(next((code for code in codes if code), 0))

    async def commit_in_transaction(
        self,
        member: Membership,
        offsets: Mapping[Place, int],
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        version: int,
    ) -> ErrorCode:
        """Send TxnOffsetCommit; returns the first error."""
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition = topic.TxnOffsetCommitRequestPartition
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=self._group,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance,
            topics=[
                topic(
                    name=place.topic,
                    partitions=[partition(partition_index=place.index, committed_offset=offset, committed_metadata="")],
                )
                for place, offset in offsets.items()
            ],
        )
        answer = await self._wire.to_coordinator(self._group, request, version, CoordinatorType.GROUP)
        codes = [part.error_code for each in answer.topics for part in each.partitions]
        return ErrorCode.of(next((code for code in codes if code), 0))
