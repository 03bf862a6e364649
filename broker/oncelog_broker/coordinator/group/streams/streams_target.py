"""Computes the target assignment of a streams group: for a small group while the heartbeat is handled, for a large
group in a background job. Pure.

The target is computed when the group epoch is above the assignment epoch, at most once in
`streams.assignment.interval.ms`. In a group that was empty, the initial rebalance delay must be over. While topics are
missing, all targets are empty. A job (background computation) uses the state of the group at its start: members that
leave during the job are skipped, and members that join during the job wait for the next assignment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog_broker.coordinator.effects import Effects, Job
from oncelog_broker.coordinator.group import streams_records
from oncelog_broker.coordinator.group.assigning.sticky_tasks import TaskGroup, TaskMember, assign_sticky
from oncelog_broker.coordinator.group.streams.configured_topology import ConfiguredTopology
from oncelog_broker.coordinator.group.streams.streams_group import Configs, StreamsGroup
from oncelog_broker.coordinator.group.streams.streams_member import StreamsMember
from oncelog_broker.coordinator.group.streams.streams_step import NUM_STANDBY_REPLICAS, StreamsStep
from oncelog_broker.coordinator.group.streams_records import StreamsTargetRecord
from oncelog_broker.coordinator.group.streams_tasks import NO_TARGET, TaskSet
from oncelog_broker.runtime.steps import Steps, run_steps

SMALL: Final = 1_000
"""The tasks of a group are assigned while a heartbeat is handled if the number of its members plus tasks is at most
this number. The assignment then takes a few milliseconds.
"""
ASSIGN_JOB: Final = "assign"
BY_INITIAL_DELAY: Final = "Assignment delayed due to the configured initial rebalance delay."
BY_INTERVAL: Final = "Assignment delayed due to the configured assignment interval."
BY_JOB: Final = "Assignment delayed until it is computed."


class StreamsAssigned(NamedTuple):
    """The result of a background job: the changed targets for the group epoch `epoch` of `group`."""

    group: StreamsGroup
    epoch: int
    changed: list[StreamsTargetRecord]


class Assignment(NamedTuple):
    """The assignment epoch and the target assignment of one member. `delay` is the reason why a newer assignment must
    wait; None if the assignment is current."""

    epoch: int
    target: TaskSet
    delay: str | None = None


def wait_ms(step: StreamsStep) -> int:
    """Return the time in ms until the group may be assigned again; 0 if the group may be assigned now. The result is
    also 0 after the clock was set back.
    """
    since = step.now_ms - step.group.assigned_at_ms
    interval = step.settings.assignment_interval_ms
    return interval - since if 0 <= since < interval else 0


def maybe_assign(
    step: StreamsStep,
    members: Mapping[str, StreamsMember],
    group_epoch: int,
    configured: ConfiguredTopology,
    member_id: str,
) -> Assignment:
    """Compute a new target if the group epoch is ahead of the assignment epoch and the group may be assigned. For a
    large group, start a background job instead. `group_epoch` is the group epoch after the changes of this heartbeat.
    """
    group = step.group
    present = Assignment(group.assignment_epoch, group.target_of(member_id))
    if group.assignment_epoch >= group_epoch:
        return present
    if wait_ms(step) > 0:
        return present._replace(delay=BY_INTERVAL)
    tasks = sum(each.tasks for each in configured.subtopologies.values()) if configured.is_ready else 0
    if len(members) + tasks * (1 + step.settings.num_standby_replicas) > SMALL:
        step.effects.jobs.append(Job(group.group_id, ASSIGN_JOB, lambda: _assign_later(step)))
        return present._replace(delay=BY_JOB)
    targets = run_steps(_targets(members, configured, step.assignment_configs, group.targets))
    for changed, target in targets.items():
        if target != group.targets.get(changed):
            step.effects.append(StreamsTargetRecord(group.group_id, changed, target))
    step.effects.append(group.target_epoch_record(group_epoch, step.now_ms))
    return Assignment(group_epoch, targets.get(member_id, NO_TARGET))


def on_initial_delay_over(step: StreamsStep) -> None:
    """Assign the tasks of a group whose initial rebalance delay is over. If topics are missing or have changed since
    the last heartbeat, do nothing, because the next heartbeat will assign the tasks.
    """
    group, configured = step.group, step.group.configured
    step.effects.changes.append(lambda: _end_initial_delay(step.logged_group()))
    if group.members and configured is not None and configured.is_ready and group.checked_topics is step.topics:
        maybe_assign(step, group.members, group.epoch, configured, "")


def _end_initial_delay(group: StreamsGroup | None) -> None:
    if group is not None:
        group.delayed_until_ms = 0


def _targets(
    members: Mapping[str, StreamsMember],
    configured: ConfiguredTopology,
    configs: Configs,
    old: Mapping[str, TaskSet],
) -> Steps[dict[str, TaskSet]]:
    """Run the assignor for streams groups. Returns the target of each member id."""
    if not configured.is_ready:
        return dict.fromkeys(members, NO_TARGET)
    group = TaskGroup(
        [
            TaskMember(member_id, members[member_id].process_id, old.get(member_id, NO_TARGET))
            for member_id in sorted(members)
        ],
        {
            subtopology_id: (subtopology.tasks, subtopology.is_stateful)
            for subtopology_id, subtopology in configured.subtopologies.items()
        },
        int(configs.get(NUM_STANDBY_REPLICAS, "0")),
    )
    yield None
    return (yield from assign_sticky(group))


def _assign_later(step: StreamsStep) -> Steps[StreamsAssigned | None]:
    """The background job: compute the targets from the present state of the group, and encode their records."""
    group = step.logged_group()
    if group is None or group.assignment_epoch >= group.epoch or not group.members or group.configured is None:
        return None
    epoch, old = group.epoch, dict(group.targets)
    targets = yield from _targets(dict(group.members), group.configured, group.assignment_configs, old)
    changed = []
    for member_id, target in targets.items():
        if target != old.get(member_id):
            record = StreamsTargetRecord(group.group_id, member_id, target)
            changed.append(record._replace(encoded=streams_records.encode(record)))
        yield None
    return StreamsAssigned(group, epoch, changed)


def take_assigned(group: StreamsGroup, assigned: StreamsAssigned, now_ms: int) -> Effects:
    """Log the result of a background job, unless the result of a later computation has been logged, or the group was
    deleted and created again since.
    """
    effects = Effects()
    if assigned.group is not group or assigned.epoch <= group.assignment_epoch:
        return effects
    # The assignment epoch is logged last, so that targets are computed again if only some of them were logged.
    effects.may_be_divided = True
    effects.records += [record for record in assigned.changed if record.member_id in group.members]
    effects.append(group.target_epoch_record(assigned.epoch, now_ms))
    return effects
