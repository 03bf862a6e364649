"""Decides when the target assignment of a share group is computed, and computes it: for a small group while the
heartbeat is handled, for a large group as a background job. Pure.

A new target is computed when the group epoch is above the assignment epoch, at most once in
`share.assignment.interval.ms`. Only share partitions with initialized state are assigned. A job (background
computation) uses the group as it was when the job began; a member that has left meanwhile is skipped, and a new member
waits for the next assignment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog_broker.coordinator.effects import Effects, Job
from oncelog_broker.coordinator.group.assigning.simple import assign_simply
from oncelog_broker.coordinator.group.assigning.spec import Subscriber, Targets
from oncelog_broker.coordinator.group.assignments import NO_TARGET, Target
from oncelog_broker.coordinator.group.share.share_group import ShareGroup
from oncelog_broker.coordinator.group.share.share_member import ShareMember
from oncelog_broker.coordinator.group.share.share_step import ShareStep
from oncelog_broker.coordinator.group.share_records import ShareTargetRecord
from oncelog_broker.runtime.steps import Steps, run_steps

SMALL: Final = 1_000
"""The target of a group is computed while a heartbeat is handled if the number of its members plus partitions is at
most this number. The computation then takes a few milliseconds.
"""
ASSIGN_JOB: Final = "assign"


class ShareAssigned(NamedTuple):
    """The result of a background job: the target assignments for the group epoch `epoch`. The field `changed` has a
    target record for each member whose target has changed.
    """

    epoch: int
    changed: list[ShareTargetRecord]


def wait_ms(step: ShareStep) -> int:
    """Return the milliseconds until a new target may be computed; 0 if it may be computed now. The result is also 0
    while no partition is assigned, or if the clock was set back.
    """
    if not any(step.group.targets.values()):
        return 0
    since = step.now_ms - step.group.assigned_at_ms
    interval = step.settings.assignment_interval_ms
    return interval - since if 0 <= since < interval else 0


def maybe_assign(
    step: ShareStep, members: Mapping[str, ShareMember], group_epoch: int, member_id: str
) -> tuple[int, Target]:
    """Compute a new target assignment if the group epoch is above the assignment epoch and the assignment interval has
    passed. For a large group, start a background job that computes the target. Returns the present assignment epoch and
    the target of `member_id`."""
    group = step.group
    present = group.assignment_epoch, group.target_of(member_id)
    if group.assignment_epoch >= group_epoch or wait_ms(step) > 0:
        return present
    assignable = group.state_partitions.assignable()
    if len(members) + sum(map(len, assignable.values())) > SMALL:
        step.effects.jobs.append(Job(group.group_id, ASSIGN_JOB, lambda: _assign_later(step)))
        return present
    targets = run_steps(_targets(step, members, assignable, group.targets))
    for changed, target in targets.items():
        if target != group.targets.get(changed):
            step.effects.append(ShareTargetRecord(group.group_id, changed, target))
    step.effects.append(group.target_epoch_record(group_epoch, step.now_ms))
    return group_epoch, targets[member_id]


def _targets(
    step: ShareStep, members: Mapping[str, ShareMember], assignable: Target, old: Mapping[str, Target]
) -> Steps[Targets]:
    """Run the assignor; returns the target assignment of each member."""
    ids: dict[frozenset[str], frozenset[bytes]] = {}
    subscribers = []
    for member_id in sorted(members):
        names = members[member_id].topics
        if names not in ids:
            ids[names] = step.topics.ids_of(names)
        subscribers.append(Subscriber(member_id, None, ids[names], old.get(member_id, NO_TARGET)))
    yield None
    existing = {
        topic_id: partitions for topic_id, partitions in assignable.items() if step.topics.name_of(topic_id) is not None
    }
    return (yield from assign_simply(subscribers, existing))


def _assign_later(step: ShareStep) -> Steps[ShareAssigned | None]:
    """The background job that computes the target assignment of the present group. The result is None if no new target
    is necessary.
    """
    group = step.logged_group()
    if group is None or group.assignment_epoch >= group.epoch or not group.members:
        return None
    epoch, old = group.epoch, dict(group.targets)
    targets = yield from _targets(step, dict(group.members), group.state_partitions.assignable(), old)
    changed = [
        ShareTargetRecord(group.group_id, member_id, target)
        for member_id, target in targets.items()
        if target != old.get(member_id)
    ]
    return ShareAssigned(epoch, changed)


def take_assigned(group: ShareGroup, assigned: ShareAssigned, now_ms: int) -> Effects:
    """Log the target assignment that a background job computed, unless a target of the same or a later group epoch has
    been logged.
    """
    effects = Effects()
    if assigned.epoch <= group.assignment_epoch:
        return effects
    effects.may_be_divided = True  # log the epoch last: if its record is missing, the target is computed again
    effects.records += [record for record in assigned.changed if record.member_id in group.members]
    effects.append(group.target_epoch_record(assigned.epoch, now_ms))
    return effects
