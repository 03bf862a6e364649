"""Handles JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic members in a group of the consumer protocol. Pure.

The generation of a classic member is its member epoch. Each JoinGroup moves the member one step towards its target
assignment: the member gives up partitions or gets partitions. The response to the JoinGroup is sent immediately.
SyncGroup returns the member's assignment. Heartbeat returns REBALANCE_IN_PROGRESS if another JoinGroup is necessary.
"""

from __future__ import annotations

from collections.abc import Collection

from oncelog_broker.coordinator.effects import Waiter
from oncelog_broker.coordinator.group.assignments import Owned
from oncelog_broker.coordinator.group.consumer.change import MemberChange, replace_static
from oncelog_broker.coordinator.group.consumer.consumer_group import CONSUMER_PROTOCOL
from oncelog_broker.coordinator.group.consumer.downgrade import (
    classic_assignment,
    downgrade_with,
    may_downgrade_with,
)
from oncelog_broker.coordinator.group.consumer.epochs import known_member, known_static_member
from oncelog_broker.coordinator.group.consumer.heartbeat import check_bytes, check_room
from oncelog_broker.coordinator.group.consumer.leaving import fence
from oncelog_broker.coordinator.group.consumer.member import ClassicProtocols, ConsumerMember, MemberState
from oncelog_broker.coordinator.group.consumer.regexes import RegexChange, change_regex
from oncelog_broker.coordinator.group.consumer.step import ConsumerStep
from oncelog_broker.coordinator.group.consumer.target import maybe_assign
from oncelog_broker.coordinator.group.joining import Join
from oncelog_broker.coordinator.group.step import TimerKind
from oncelog_protocol.consumer_protocol import ConsumerProtocolSubscription, decode_versioned
from oncelog_protocol.errors import ErrorCode, KafkaError, MalformedMessage
from oncelog_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog_protocol.messages.join_group import JoinGroupResponse
from oncelog_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from oncelog_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def join(step: ConsumerStep, asked: Join) -> None:
    """Handle a JoinGroup. Raises KafkaError INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID."""
    request, group, config = asked.request, step.group, step.config
    if not config.may_mix:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Cannot join the consumer group {group.group_id} with the classic protocol because the group migration is "
            "disabled.",
        )
    is_new = request.member_id == ""
    member_id = step.new_id() if is_new else request.member_id
    check_room(step, member_id, request.group_instance_id)
    if not asked.protocols or not group.supports_classic(request.protocol_type, (name for name, _ in asked.protocols)):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported.")
    if is_new and asked.requires_member_id and request.group_instance_id is None:
        step.effects.reply(asked.waiter, _member_id_required(asked, member_id))
        return
    subscription = _subscription(asked)
    before, replaced, old = _member(step, member_id, request.group_instance_id, is_new=is_new)
    becomes_classic = old is not None and may_downgrade_with(step, old)
    change = MemberChange(step, before, _said(before, asked, subscription), replaced)
    check_bytes(step, before if replaced or before.member_id in group.members else None, change.member)
    changed = change.log_said()
    changed |= change_regex(change, lambda _: True, None) is not RegexChange.NONE
    change.raise_group_epoch(is_needed=changed)
    owned = _owned(step, subscription)
    if becomes_classic and old is not None:
        is_stale = group.assignment_epoch < change.group_epoch
        if not is_stale:
            target = group.target_of(old.member_id)
            change.reconcile(group.assignment_epoch, target, owned, subscription_changed=changed)
        # A member that still waits for partitions of the replaced member would never hear that they are its own now,
        # because the classic group counts as stable.
        rejoins = is_stale or not all(
            member.is_reconciled_to(group.assignment_epoch)
            for member in group.members.values()
            if member.member_id != old.member_id
        )
        downgrade_with(step, old.member_id, change.member, change.group_epoch, rejoins=rejoins)
    else:
        epoch, target = maybe_assign(change)
        change.reconcile(epoch, target, owned, subscription_changed=changed)
        step.cancel_timer(TimerKind.JOIN, member_id)
        step.effects.changes.append(lambda: _note_asked(step, member_id, is_asked=False))
        step.start_session(change.member)
        step.start_timer(TimerKind.SYNC, member_id, change.member.rebalance_timeout_ms)
    assert change.member.classic is not None
    step.effects.reply(
        asked.waiter,
        JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=change.group_epoch if becomes_classic else change.member.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=change.member.classic.name,
            leader="",
            member_id=member_id,
            members=[],
        ),
    )


def _member_id_required(asked: Join, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=ErrorCode.MEMBER_ID_REQUIRED,
        protocol_name=asked.no_protocol,
        leader="",
        member_id=member_id,
        members=[],
    )


def _member(
    step: ConsumerStep, member_id: str, instance_id: str | None, *, is_new: bool
) -> tuple[ConsumerMember, str | None, ConsumerMember | None]:
    """Return the member as it was before this request, the id of the static member that it replaces, and the replaced
    static member. The second and third value are None if no static member is replaced.
    """
    group = step.group
    if instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id), None, None
    if not is_new:
        return known_static_member(group, member_id, instance_id), None, None
    old = group.static_member(instance_id)
    if old is None:
        return ConsumerMember(member_id), None, None
    return replace_static(step, old, member_id), old.member_id, old


def _said(member: ConsumerMember, asked: Join, subscription: ConsumerProtocolSubscription) -> ConsumerMember:
    request = asked.request
    timeout = request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
    return member._replace(
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=timeout,
        client_id=asked.client.client_id,
        client_host=asked.client.host,
        topics=frozenset(subscription.topics),
        regex="",  # classic clients match their topic patterns themselves, so the broker stores no regular expression
        classic=ClassicProtocols(request.session_timeout_ms, tuple(asked.protocols)),
    )


def _subscription(asked: Join) -> ConsumerProtocolSubscription:
    try:
        return decode_versioned(ConsumerProtocolSubscription, asked.protocols[0][1])
    except MalformedMessage as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "Malformed embedded consumer protocol in subscription deserialization.",
        ) from error


def _owned(step: ConsumerStep, subscription: ConsumerProtocolSubscription) -> Owned:
    return {
        topic_id: frozenset(topic.partitions)
        for topic in subscription.owned_partitions
        if (topic_id := step.topics.id_of(topic.topic)) is not None
    }


def _known(step: ConsumerStep, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
    """Return the classic member with this id, whose epoch must be `generation`. Raises KafkaError UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    if instance_id is None:
        member = known_member(step.group, member_id)
    else:
        member = known_static_member(step.group, member_id, instance_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if generation != member.epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of {member_id}.",
        )
    return member


def sync(step: ConsumerStep, request: SyncGroupRequest, waiter: Waiter) -> None:
    """Handle a SyncGroup. Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS.
    """
    member = _known(step, request.member_id, request.group_instance_id, request.generation_id)
    assert member.classic is not None
    if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in (
        None,
        member.classic.name,
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if step.group.assignment_epoch > member.epoch and not member.is_revoking:
        _ask_to_join(step, member)
        step.effects.reply(waiter, KafkaError(ErrorCode.REBALANCE_IN_PROGRESS))
        return
    step.cancel_timer(TimerKind.SYNC, member.member_id)
    step.start_session(member)
    assigned = {topic_id: tuple(epochs) for topic_id, epochs in member.assigned.items()}
    step.effects.reply(
        waiter,
        SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=classic_assignment(assigned, member.classic.protocols[0][1], step.topics),
        ),
    )


def heartbeat(step: ConsumerStep, request: HeartbeatRequest, waiter: Waiter) -> None:
    """Handle a Heartbeat; the response is REBALANCE_IN_PROGRESS if the member must join again. Raises KafkaError
    UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.

    Unlike Kafka, this function also computes a new target assignment if necessary, because a group with only classic
    members gets no other heartbeats.
    """
    group = step.group
    member = _known(step, request.member_id, request.group_instance_id, request.generation_id)
    step.start_session(member)
    change = MemberChange(step, member, member, None)
    change.raise_group_epoch(is_needed=False)
    epoch, _ = maybe_assign(change)
    code = ErrorCode.NONE
    is_free_now = member.state is MemberState.UNRELEASED and not group.waits_for_others(member)
    if member.epoch < epoch or member.is_revoking or is_free_now:
        code = ErrorCode.REBALANCE_IN_PROGRESS
        _ask_to_join(step, member)
    step.effects.reply(waiter, HeartbeatResponse(error_code=code))


def _ask_to_join(step: ConsumerStep, member: ConsumerMember) -> None:
    """Store that the member got a REBALANCE_IN_PROGRESS response. The first REBALANCE_IN_PROGRESS response starts the
    member's rebalance timeout, within which the member must join again.
    """
    if member.member_id not in step.group.asked_to_join:
        step.effects.changes.append(lambda: _note_asked(step, member.member_id, is_asked=True))
        step.start_timer(TimerKind.JOIN, member.member_id, member.rebalance_timeout_ms)


def _note_asked(step: ConsumerStep, member_id: str, *, is_asked: bool) -> None:
    group = step.logged_group()
    if group is None:
        return
    if is_asked:
        group.asked_to_join.add(member_id)
    else:
        group.asked_to_join.discard(member_id)


def leave(
    step: ConsumerStep, members: Collection[LeaveGroupRequest.MemberIdentity]
) -> list[LeaveGroupResponse.MemberResponse]:
    """Handle a LeaveGroup. Classic members send it to leave; administrators send it to remove members of both
    protocols."""
    gone: dict[str, ConsumerMember] = {}
    responses = []
    for identity in members:
        code = ErrorCode.NONE
        try:
            member = _leaver(step, identity)
        except KafkaError as error:
            code = error.code
        else:
            gone[member.member_id] = member
        responses.append(
            LeaveGroupResponse.MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
            )
        )
    fence(step, gone.values())
    return responses


def _leaver(step: ConsumerStep, identity: LeaveGroupRequest.MemberIdentity) -> ConsumerMember:
    """Return the group member that `identity` (member id or instance id) names. Raises KafkaError UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID.
    """
    if identity.group_instance_id is None:
        return known_member(step.group, identity.member_id)
    if identity.member_id == "":
        member = step.group.static_member(identity.group_instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member
    return known_static_member(step.group, identity.member_id, identity.group_instance_id)
