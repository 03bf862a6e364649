"""Removes members from streams groups, when they leave or are fenced. Pure."""

from __future__ import annotations

from oncelog_broker.coordinator.group.step import TimerKind
from oncelog_broker.coordinator.group.streams.heartbeat_request import StreamsAnswer, StreamsHeartbeat
from oncelog_broker.coordinator.group.streams.streams_group import StreamsGroup, unknown_member
from oncelog_broker.coordinator.group.streams.streams_member import LEAVING_EPOCH
from oncelog_broker.coordinator.group.streams.streams_step import StreamsStep
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse


def leave(step: StreamsStep, asked: StreamsHeartbeat) -> None:
    """Handle a heartbeat with the epoch -1 (leave). Raises KafkaError UNKNOWN_MEMBER_ID."""
    member_id, group = asked.request.member_id, step.group
    if member_id not in group.members:
        raise unknown_member(group, member_id)
    if asked.request.shutdown_application and len(group.members) > 1:
        step.effects.changes.append(lambda: _note_shutdown(step.logged_group(), member_id))
    fence(step, member_id)
    response = StreamsGroupHeartbeatResponse(
        error_code=ErrorCode.NONE, member_id=member_id, member_epoch=LEAVING_EPOCH, status=[]
    )
    step.effects.reply(asked.waiter, StreamsAnswer(response))


def _note_shutdown(group: StreamsGroup | None, member_id: str) -> None:
    if group is not None and group.shutdown_requested_by is None:
        group.shutdown_requested_by = member_id


def fence(step: StreamsStep, member_id: str) -> None:
    """Remove a member with all its tasks."""
    group, effects = step.group, step.effects
    step.cancel_timers(member_id)
    effects.records += group.tombstones_of(member_id)
    effects.append(group.next_epoch_record())
    if len(group.members) == 1:
        # The last member has left, so log an assignment epoch for the empty group. Without this record the assignment
        # epoch would stay behind the group epoch, because no member is left whose heartbeat computes an assignment
        # (KAFKA-20442).
        effects.append(group.target_epoch_record(group.epoch + 1, 0))


def on_member_timer(step: StreamsStep, kind: str, member_id: str) -> None:
    """Fence a member whose session or rebalance timeout has expired."""
    member = step.group.members.get(member_id)
    if member is None or (kind == TimerKind.REBALANCE and not member.is_revoking):
        return
    fence(step, member_id)
