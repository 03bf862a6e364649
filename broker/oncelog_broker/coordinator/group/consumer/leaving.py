"""Removes members of a consumer group that leave or are fenced. Pure."""

from __future__ import annotations

from collections.abc import Collection

from oncelog_broker.coordinator.group.assignments import NO_PARTITIONS, as_target, at_epoch
from oncelog_broker.coordinator.group.consumer.downgrade import downgrade, may_downgrade_without
from oncelog_broker.coordinator.group.consumer.epochs import known_member, known_static_member
from oncelog_broker.coordinator.group.consumer.member import STATIC_LEAVING_EPOCH, ConsumerMember, MemberState
from oncelog_broker.coordinator.group.consumer.regexes import drop_unused
from oncelog_broker.coordinator.group.consumer.step import ConsumerStep
from oncelog_broker.coordinator.group.step import GroupTimer, TimerKind
from oncelog_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def leave(step: ConsumerStep, request: ConsumerGroupHeartbeatRequest) -> None:
    """Handle a heartbeat with epoch -1 (leave) or -2 (temporary leave). A static member that leaves temporarily keeps
    its partitions until its session ends. Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if request.instance_id is None:
        member = known_member(step.group, request.member_id)
    else:
        member = known_static_member(step.group, request.member_id, request.instance_id)
    if request.member_epoch == STATIC_LEAVING_EPOCH:
        away = member._replace(
            epoch=STATIC_LEAVING_EPOCH,
            state=MemberState.STABLE,  # the member keeps its partitions, so only its session timeout may remove it
            assigned=at_epoch(as_target(member.assigned), 0),
            pending_revocation=NO_PARTITIONS,
        )
        step.effects.append(away.current_record(step.group.group_id))
        step.follow_reconciliation(away)
    else:
        fence(step, [member])


def fence(step: ConsumerStep, gone: Collection[ConsumerMember]) -> None:
    """Remove members and their assignments. The group becomes a classic group if only classic members are left."""
    group, effects = step.group, step.effects
    if not gone:
        return
    ids = {member.member_id for member in gone}
    for member_id in ids:
        step.cancel_timers(member_id)
    if may_downgrade_without(step, ids):
        downgrade(step, ids)
        return
    for member in gone:
        effects.records += group.tombstones_of(member.member_id)
    left = {member_id: member for member_id, member in group.members.items() if member_id not in ids}
    drop_unused(step, left)
    epoch = group.epoch + 1
    effects.append(group.epoch_record(epoch, step.topics.hash_of(group.topics_with(left))))
    if not left:
        # Log an assignment epoch for the empty group, because otherwise it would stay in the state ASSIGNING: no member
        # is left whose heartbeat computes an assignment (KAFKA-20442).
        effects.append(group.target_epoch_record(epoch, 0))


def on_timer(step: ConsumerStep, timer: GroupTimer) -> None:
    """Remove a member that did not send a heartbeat, give up partitions, join, or sync in time."""
    member = step.group.members.get(timer.member_id)
    if member is None or (timer.kind == TimerKind.REBALANCE and not member.is_revoking):
        return
    fence(step, [member])
