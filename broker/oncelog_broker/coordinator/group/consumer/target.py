"""Decides when the target assignment of a consumer group is computed, and computes it: for a small group while the
heartbeat is handled, for a large group as a background job. Pure.

A new target is computed when the group epoch is above the assignment epoch, at most once in
`consumer.assignment.interval.ms` (KIP-1263). A job (background computation) uses the state that the group had when the
job began. The result of the job is used even if the group has changed since: a member that has left is skipped, and a
new member waits for the next assignment. A target may contain a topic that its member no longer reads; `reconcile`
gives the member no partitions of this topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog_broker.coordinator.effects import Effects, Job
from oncelog_broker.coordinator.group import consumer_records
from oncelog_broker.coordinator.group.assigning.assignors import ASSIGNORS
from oncelog_broker.coordinator.group.assigning.spec import UNITS_PER_STEP, GroupSpec, Subscriber, Targets
from oncelog_broker.coordinator.group.assignments import NO_TARGET, Target
from oncelog_broker.coordinator.group.consumer.change import MemberChange, preferred_assignor
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroup, ResolvedRegex
from oncelog_broker.coordinator.group.consumer.member import ConsumerMember
from oncelog_broker.coordinator.group.consumer.step import ConsumerStep
from oncelog_broker.coordinator.group.consumer_records import TargetRecord
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_broker.runtime.steps import Steps, run_steps

SMALL: Final = 1_000
"""The target of a group is computed while a heartbeat is handled if the number of its members plus partitions is at
most this number. The computation then takes a few milliseconds.
"""
RECORDS_PER_STEP: Final = 32
"""Number of members whose new targets are encoded in one step; a record takes some ten microseconds."""
ASSIGN_JOB: Final = "assign"


class Assigned(NamedTuple):
    """The result of a background job: the target assignments for the group epoch `epoch` of `group`. `changed` has the
    instance id and the target record of each member whose target has changed."""

    group: ConsumerGroup
    epoch: int
    changed: list[tuple[str | None, TargetRecord]]


class _Snapshot(NamedTuple):
    """All inputs of the computation of a target assignment."""

    group_id: str
    epoch: int
    assignor: str
    members: Mapping[str, ConsumerMember]
    targets: Mapping[str, Target]
    static_targets: Mapping[str, Target]
    """Member id -> the target that a static member takes over from its previous member id."""
    regexes: Mapping[str, ResolvedRegex]
    topics: TopicView


def wait_ms(step: ConsumerStep) -> int:
    """Return the milliseconds until a new target may be computed; 0 if it may be computed now. The result is also 0
    after the clock was set back.
    """
    since = step.now_ms - step.group.assigned_at_ms
    interval = step.settings.assignment_interval_ms
    return interval - since if 0 <= since < interval else 0


def maybe_assign(change: MemberChange) -> tuple[int, Target]:
    """Compute a new target assignment if the group epoch is above the assignment epoch and the assignment interval has
    passed. For a large group, start a background job that computes the target. Returns the present assignment epoch and
    the member's target."""
    step, group, member = change.step, change.step.group, change.member
    present = group.assignment_epoch, group.target_of(member.member_id, member.instance_id)
    if group.assignment_epoch >= change.group_epoch or wait_ms(step) > 0:
        return present
    members = change.members()
    snapshot = _snapshot(step, members, change.group_epoch)
    if len(members) + _partitions_at_most(snapshot, SMALL) > SMALL:
        step.effects.jobs.append(Job(group.group_id, ASSIGN_JOB, lambda: _assign_later(step)))
        return present
    targets = run_steps(_targets(snapshot))
    for member_id, target in targets.items():
        if target != group.targets.get(member_id):
            step.effects.append(TargetRecord(group.group_id, member_id, target))
    step.effects.append(group.target_epoch_record(change.group_epoch, step.now_ms))
    return change.group_epoch, targets[member.member_id]


def _snapshot(step: ConsumerStep, members: Mapping[str, ConsumerMember], epoch: int) -> _Snapshot:
    group = step.group
    static_targets = {
        member_id: group.target_of(member_id, member.instance_id)
        for member_id, member in members.items()
        if member.instance_id is not None and member_id not in group.targets
    }
    assignor = preferred_assignor(members.values(), step.config.consumer_assignors)
    return _Snapshot(
        group.group_id, epoch, assignor, members, group.targets, static_targets, group.regexes, step.topics
    )


def _partitions_at_most(snapshot: _Snapshot, bound: int) -> int:
    """Return the number of partitions that the members read; the count stops at the first number above `bound`."""
    count = 0
    for names in {(member.topics, member.regex) for member in snapshot.members.values()}:
        for topic_id in snapshot.topics.ids_of(_names(snapshot, *names)):
            count += snapshot.topics.partitions_of(topic_id)
            if count > bound:
                return count
    return count


def _names(snapshot: _Snapshot, topics: frozenset[str], regex: str) -> frozenset[str]:
    resolved = snapshot.regexes.get(regex) if regex else None
    return topics if resolved is None else topics | resolved.topics


def _targets(snapshot: _Snapshot) -> Steps[Targets]:
    """Run the assignor; returns the target assignment of each member."""
    ids: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
    subscribers = []
    for number, member_id in enumerate(sorted(snapshot.members), 1):
        member = snapshot.members[member_id]
        said = (member.topics, member.regex)
        if said not in ids:
            ids[said] = snapshot.topics.ids_of(_names(snapshot, *said))
        target = snapshot.targets.get(member_id) or snapshot.static_targets.get(member_id, NO_TARGET)
        subscribers.append(Subscriber(member_id, member.instance_id, ids[said], target))
        if number % UNITS_PER_STEP == 0:
            yield None
    partitions = {topic_id: snapshot.topics.partitions_of(topic_id) for read in ids.values() for topic_id in read}
    yield None
    # A group whose members subscribe partly by names and partly by regular expressions counts as heterogeneous, as in
    # Kafka, even if all members read the same topics.
    is_homogeneous = len(ids) == 1 and (not any(regex for _, regex in ids) or not any(topics for topics, _ in ids))
    spec = GroupSpec(subscribers, partitions, is_homogeneous)
    return (yield from ASSIGNORS[snapshot.assignor](spec))


def _assign_later(step: ConsumerStep) -> Steps[Assigned | None]:
    """The background job that computes the target of the present group, and encodes the records of changed targets. The
    result is None if no new target is necessary."""
    group = step.logged_group()
    if group is None or group.assignment_epoch >= group.epoch:
        return None
    step = step._replace(group=group, effects=Effects())
    snapshot = _snapshot(step, dict(group.members), group.epoch)._replace(
        targets=dict(group.targets), regexes=dict(group.regexes)
    )
    targets = yield from _targets(snapshot)
    changed: list[tuple[str | None, TargetRecord]] = []
    for number, (member_id, target) in enumerate(targets.items(), 1):
        if target != snapshot.targets.get(member_id):
            record = TargetRecord(group.group_id, member_id, target)
            encoded = consumer_records.encode(record)
            changed.append((snapshot.members[member_id].instance_id, record._replace(encoded=encoded)))
        if number % RECORDS_PER_STEP == 0:
            yield None
    return Assigned(group, snapshot.epoch, changed)


def take_assigned(group: ConsumerGroup, assigned: Assigned, now_ms: int) -> Effects:
    """Log the target assignment that a background job computed, unless a target of the same or a later group epoch has
    been logged, or the group was deleted and created again since.
    """
    effects = Effects()
    if assigned.group is not group or assigned.epoch <= group.assignment_epoch:
        return effects
    # The record of the assignment epoch is logged after the records of the members' targets. If the record of the
    # assignment epoch is missing, the assignment is computed again. It does no harm if only some targets were logged,
    # because the owner of a partition does not depend on targets.
    effects.may_be_divided = True
    for instance_id, record in assigned.changed:
        if record.member_id in group.members:
            effects.append(record)
        elif instance_id in group.static_members:
            member_id = group.static_members[instance_id]
            effects.append(TargetRecord(group.group_id, member_id, record.value))
    effects.append(group.target_epoch_record(assigned.epoch, now_ms))
    return effects
