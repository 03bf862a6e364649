"""The response to a StreamsGroupHeartbeat: tasks, statuses, endpoints, and the time of the next heartbeat. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from oncelog_broker.coordinator.group.streams.configured_topology import ConfiguredTopology
from oncelog_broker.coordinator.group.streams.heartbeat_request import StreamsAnswer, StreamsHeartbeat
from oncelog_broker.coordinator.group.streams.streams_group import StreamsGroup
from oncelog_broker.coordinator.group.streams.streams_member import StreamsMember, StreamsMemberState
from oncelog_broker.coordinator.group.streams.streams_step import StreamsStep
from oncelog_broker.coordinator.group.streams.streams_target import Assignment, wait_ms
from oncelog_broker.coordinator.group.streams.streams_topology import StreamsTopology
from oncelog_broker.coordinator.group.streams_tasks import CurrentTasks, listed
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.streams_group_heartbeat import StatusCode, StreamsGroupHeartbeatResponse, TaskIds

SOON_MS: Final = 500
"""Maximum heartbeat interval, in ms, of members that wait for tasks or for topics."""
MIN_INTERVAL_MS: Final = 100
"""Minimum heartbeat interval, in ms, of all members."""

Status = StreamsGroupHeartbeatResponse.Status


def statuses_of(
    group: StreamsGroup,
    member: StreamsMember,
    topology: StreamsTopology,
    configured: ConfiguredTopology,
    assignment: Assignment,
    asked: StreamsHeartbeat,
) -> Iterable[Status]:
    if member.topology_epoch < topology.epoch:
        yield _status(
            StatusCode.STALE_TOPOLOGY,
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch "
            f"{topology.epoch}.",
        )
    if assignment.delay is not None:
        yield _status(StatusCode.ASSIGNMENT_DELAYED, assignment.delay)
    if configured.problem is not None:
        yield _status(configured.problem.code, configured.problem.detail)
    by = group.shutdown_requested_by
    if by is None and asked.request.shutdown_application:
        by = member.member_id
    if by is not None:
        yield _status(
            StatusCode.SHUTDOWN_APPLICATION,
            f"Streams group member {by} encountered a fatal error and requested a shutdown for the entire application.",
        )


def _status(code: StatusCode, detail: str) -> Status:
    return Status(status_code=code, status_detail=detail)


def interval_ms(
    step: StreamsStep,
    member: StreamsMember,
    configured: ConfiguredTopology,
    assignment: Assignment,
    delayed_until_ms: int,
) -> int:
    """Return the milliseconds until the member's next heartbeat."""
    interval = step.settings.heartbeat_interval_ms
    if delayed_until_ms:
        return min(interval, SOON_MS, max(MIN_INTERVAL_MS, delayed_until_ms - step.now_ms))
    if assignment.delay is not None:
        return min(interval, SOON_MS, max(MIN_INTERVAL_MS, wait_ms(step)))
    if member.state is StreamsMemberState.UNRELEASED or configured.missing:
        return min(interval, SOON_MS)
    return interval


def answer(
    step: StreamsStep,
    asked: StreamsHeartbeat,
    member: StreamsMember,
    statuses: list[Status],
    interval_ms: int,
    *,
    shows_tasks: bool,
    configured: ConfiguredTopology | None = None,
    has_new_tasks: bool = False,
) -> None:
    """Reply to a heartbeat, and restart the member's session. If `configured` is None, the field `configured` of the
    group is used. `has_new_tasks` is True if the tasks of the member have changed in this step, so that the tasks at
    endpoints may have changed.
    """
    step.start_session(member.member_id)
    group = step.group
    configured = configured or group.configured
    response = StreamsGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=interval_ms,
        status=statuses,
    )
    if shows_tasks:
        _show_tasks(response, member.assigned)
    epoch = group.endpoint_epoch + (has_new_tasks and member.endpoint is not None)
    if epoch != group.endpoint_epoch:
        step.effects.changes.append(lambda: _note_endpoint_epoch(step.logged_group(), epoch))
    response.endpoint_information_epoch = epoch
    if epoch != asked.request.endpoint_information_epoch and configured is not None:
        members: Mapping[str, StreamsMember] = {**group.members, member.member_id: member}
        response.partitions_by_user_endpoint = group.endpoints.of(
            members.values(), configured, step.topics.partitions_of_name
        )
    missing = () if configured is None else configured.missing
    step.effects.reply(asked.waiter, StreamsAnswer(response, missing, 2 * step.settings.heartbeat_interval_ms))


def _show_tasks(response: StreamsGroupHeartbeatResponse, assigned: CurrentTasks) -> None:
    def ids(subtopology: str, numbers: list[int]) -> TaskIds:
        return TaskIds(subtopology_id=subtopology, partitions=numbers)

    response.active_tasks = listed(assigned.active, ids)
    response.standby_tasks = listed(assigned.standby, ids)
    response.warmup_tasks = listed(assigned.warmup, ids)


def _note_endpoint_epoch(group: StreamsGroup | None, epoch: int) -> None:
    if group is not None:
        group.endpoint_epoch = epoch
