"""Handles SyncGroup, Heartbeat, LeaveGroup and session timeouts: the events of a member between two JoinGroups.
Pure."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from oncelog_broker.coordinator.effects import Effects, Waiter
from oncelog_broker.coordinator.group.classic_group import ClassicGroup, Member
from oncelog_broker.coordinator.group.joining import rebalance
from oncelog_broker.coordinator.group.records import group_record
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_broker.coordinator.group.step import Step, TimerKind
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.heartbeat import HeartbeatRequest
from oncelog_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from oncelog_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

MemberIdentity = LeaveGroupRequest.MemberIdentity


def check_generation(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
    """Return the member with this id, if the member id and the generation are current. Raises KafkaError
    UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    member = group.check_member(member_id, instance_id)
    if generation != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member


# --- functions for SyncGroup ------------------------------------------------------------------------------------------


def sync(step: Step, request: SyncGroupRequest, waiter: Waiter) -> None:
    """Handle a SyncGroup. The SyncGroup of the leader logs the assignments and replies to all members; the other
    members wait for the leader. Raises the KafkaErrors of `check_generation`, INCONSISTENT_GROUP_PROTOCOL, or
    REBALANCE_IN_PROGRESS."""
    group = step.group
    member = check_generation(group, request.member_id, request.group_instance_id, request.generation_id)
    for said, known in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if said is not None and known is not None and said != known:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is GroupState.PREPARING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    if group.state is GroupState.STABLE:
        _has_synced(step, member.member_id)
        step.start_session(member)
        step.effects.reply(waiter, _assigned(group, member.assignment))
    elif group.leader_id == member.member_id:
        _hand_out(step, request, waiter)
    else:
        _has_synced(step, member.member_id)
        earlier = group.syncing.get(member.member_id)
        if earlier is not None:  # end the wait of the member's earlier SyncGroup request
            step.effects.reply(earlier, KafkaError(ErrorCode.REBALANCE_IN_PROGRESS))
        group.syncing[member.member_id] = waiter


def _hand_out(step: Step, request: SyncGroupRequest, waiter: Waiter) -> None:
    """Log the assignments. When the record is logged, the group becomes stable and all waiting members get their
    assignments."""
    group = step.group
    # The callback gets a new `Effects` object. If it referred to the object `step.effects`, of which it is a field,
    # this object would stay in memory until the next garbage collection.
    step.effects.if_not_logged = partial(_not_handed_out, step._replace(effects=Effects()))
    value = group.value(step.now_ms, {given.member_id: given.assignment for given in request.assignments})
    step.effects.append(group_record(group.group_id, value))
    if not group.pending_sync - {request.member_id}:
        step.cancel_timer(TimerKind.SYNC)
    step.effects.changes.append(lambda: group.pending_sync.discard(request.member_id))
    waiters = {**group.syncing, request.member_id: waiter}
    for logged in value.members:
        if logged.member_id in waiters:
            step.effects.reply(waiters[logged.member_id], _assigned(group, logged.assignment))
            step.start_session(group.members[logged.member_id])


def _not_handed_out(step: Step, error: KafkaError) -> Effects:
    """Handle a failure to log the assignments: the waiting members get the same error as the leader, and all members
    must join again.
    """
    group, effects = step.group, Effects()
    step = step._replace(effects=effects)
    for member_id, waiter in group.syncing.items():
        effects.reply(waiter, error)
        step.start_session(group.members[member_id])
    group.syncing.clear()
    rebalance(step)
    return effects


def _assigned(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=assignment,
    )


def _has_synced(step: Step, member_id: str) -> None:
    pending = step.group.pending_sync
    if member_id in pending:
        pending.discard(member_id)
        if not pending:
            step.cancel_timer(TimerKind.SYNC)


def on_sync_timer(step: Step) -> None:
    """Remove members that have not requested their assignment in time."""
    group = step.group
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) and group.pending_sync:
        remove(step, sorted(group.pending_sync))


# --- functions for Heartbeat ------------------------------------------------------------------------------------------


def heartbeat(step: Step, request: HeartbeatRequest) -> ErrorCode:
    """Restart the session timer of a member that has sent a heartbeat. The result REBALANCE_IN_PROGRESS means that the
    member must rejoin. Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    group = step.group
    member = check_generation(group, request.member_id, request.group_instance_id, request.generation_id)
    step.start_session(member)
    is_rebalancing = group.state is GroupState.PREPARING_REBALANCE
    return ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE


def on_session_timer(step: Step, member_id: str) -> None:
    """Remove a member whose session has timed out. A member whose JoinGroup or SyncGroup waits for a response is not
    removed, because it need not send heartbeats. Exception: a new member whose JoinGroup waits is removed after
    NEW_MEMBER_JOIN_TIMEOUT_MS.
    """
    group = step.group
    if member_id in group.pending_members:
        group.pending_members.discard(member_id)
        _complete_without_pending(step)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    waits = member_id in group.joining or member_id in group.syncing
    if member.is_new or not waits:
        remove(step, [member_id])


# --- functions for LeaveGroup -----------------------------------------------------------------------------------------


def leave(step: Step, members: Collection[MemberIdentity]) -> list[LeaveGroupResponse.MemberResponse]:
    """Remove all members that the request names, with only one rebalance. If the request removes the last members, the
    record of the empty group is logged. Unused member ids in the request are removed after the record is logged
    (`Effects.changes`).
    """
    group = step.group
    leaving: list[str] = []
    unused: list[str] = []
    responses = []
    for identity in members:
        code = ErrorCode.NONE
        try:
            member_id = _leaver(group, identity)
        except KafkaError as error:
            code = error.code
        else:
            if member_id in leaving or member_id in unused:
                code = ErrorCode.UNKNOWN_MEMBER_ID
            elif member_id in group.pending_members:
                unused.append(member_id)
            else:
                leaving.append(member_id)
        responses.append(
            LeaveGroupResponse.MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
            )
        )
    for member_id in unused:
        step.end_session(member_id)
    if leaving and len(leaving) == len(group.members):
        remove(step, leaving)
        step.effects.changes.append(lambda: group.pending_members.difference_update(unused))
    else:
        group.pending_members.difference_update(unused)
        if leaving:
            remove(step, leaving)
        elif unused:
            _complete_without_pending(step)
    return responses


def _leaver(group: ClassicGroup, identity: MemberIdentity) -> str:
    """Return the id of the member that `identity` names. Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if identity.member_id == "" and identity.group_instance_id is not None:
        current = group.static_members.get(identity.group_instance_id)
        if current is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return current
    if identity.member_id in group.pending_members and identity.group_instance_id is None:
        return identity.member_id
    return group.check_member(identity.member_id, identity.group_instance_id).member_id


# --- functions that remove members for any reason -------------------------------------------------------------------


def remove(step: Step, member_ids: Collection[str]) -> None:
    """Remove members, reply to their waiting requests with UNKNOWN_MEMBER_ID, and rebalance without these members."""
    group = step.group
    for member_id in member_ids:
        step.refuse(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    if len(member_ids) == len(group.members):
        step.become_empty()
        return
    for member_id in member_ids:
        step.end_session(member_id)
        group.remove(member_id)
    rebalance(step)


def _complete_without_pending(step: Step) -> None:
    """Complete a rebalance if it waited only for unused member ids and these member ids have been removed."""
    if step.group.state is GroupState.PREPARING_REBALANCE:
        rebalance(step)
