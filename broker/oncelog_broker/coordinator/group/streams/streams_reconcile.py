"""Reconciles a member of a streams group with its target assignment, one step for each heartbeat. Pure.

Kafka 4.3's counterpart is CurrentAssignmentBuilder in the package `streams`. As in consumer groups, a member first
gives up tasks, and then gets new tasks. An active task must not have another owner. Members of one process share a
state directory, so no two members of one process may have the same task in any role. A member that has given up its
tasks moves to the epoch of its target. In Kafka such a member moves only to its own epoch plus 1. Another member may
have had the same tasks in that epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from oncelog_broker.coordinator.group.streams.streams_member import StreamsMember, StreamsMemberState
from oncelog_broker.coordinator.group.streams_tasks import (
    EMPTY,
    NOTHING,
    CurrentTasks,
    EpochTasks,
    Role,
    Tasks,
    TaskSet,
    owns_any,
)
from oncelog_protocol.errors import ErrorCode, KafkaError

IsFree = Callable[[Role, str, int, StreamsMember], bool]
"""Function that returns whether a member may get a task in a role; the arguments are role, subtopology, partition and
member. A task that the member must give up counts as free for this member."""


class StreamsAim(NamedTuple):
    """The input of a member's reconciliation: the assignment `target`, computed for the assignment epoch `epoch`.
    `owned` has the tasks that the member claims to own, or None if the heartbeat makes no claim.
    """

    epoch: int
    target: TaskSet
    is_free: IsFree
    owned: TaskSet | None


def reconcile(member: StreamsMember, aim: StreamsAim) -> StreamsMember:
    """Return the member after its next step towards the target: the member gives up tasks or gets free tasks. Raises
    KafkaError FENCED_MEMBER_EPOCH if the member may still own tasks and is in a state that only a later release knows.
    """
    if member.state is StreamsMemberState.STABLE and member.epoch == aim.epoch:
        return member
    if member.state is StreamsMemberState.UNREVOKED and owns_any(aim.owned, member.pending_revocation):
        return member
    if member.state is StreamsMemberState.UNKNOWN:
        if aim.owned is None or any(aim.owned):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The member is in a state that this release does not know. It must give up all tasks and join again.",
            )
        return _next(member, aim.epoch, aim)
    return _next(member, member.epoch, aim)


class _Difference(NamedTuple):
    """A member's tasks in one role (active, standby or warm-up): the tasks that it keeps, must give up, and gets now.
    `is_unreleased` is True if other members still have some tasks of the target.
    """

    kept: Tasks
    revoked: Tasks
    given: Tasks
    is_unreleased: bool


def _next(member: StreamsMember, epoch: int, aim: StreamsAim) -> StreamsMember:
    """Compute the next assignment of the member. The member keeps the member epoch `epoch` while it must give up
    tasks."""
    had, target = member.assigned, aim.target
    active = _difference(had.tasks.active, target.active, Role.ACTIVE, member, aim)
    standby = _difference(had.standby, target.standby, Role.STANDBY, member, aim)
    warmup = _difference(had.warmup, target.warmup, Role.WARMUP, member, aim)
    kept = CurrentTasks(_since(had.active, active.kept), standby.kept, warmup.kept)
    revoked = CurrentTasks(_since(had.active, active.revoked), standby.revoked, warmup.revoked)
    if not revoked.is_empty and owns_any(aim.owned, revoked):
        return member.moved_to(epoch, StreamsMemberState.UNREVOKED, kept, revoked)
    given = {subtopology: dict.fromkeys(sorted(numbers), aim.epoch) for subtopology, numbers in active.given.items()}
    assigned = CurrentTasks(
        {key: {**kept.active.get(key, {}), **given.get(key, {})} for key in (*kept.active, *given)},
        _united(standby),
        _united(warmup),
    )
    is_unreleased = active.is_unreleased or standby.is_unreleased or warmup.is_unreleased
    state = StreamsMemberState.UNRELEASED if is_unreleased else StreamsMemberState.STABLE
    return member.moved_to(aim.epoch, state, assigned, NOTHING)


def _difference(had: Tasks, target: Tasks, role: Role, member: StreamsMember, aim: StreamsAim) -> _Difference:
    kept, revoked, given, is_unreleased = {}, {}, {}, False
    for subtopology in sorted({*had, *target}):
        before, wanted = had.get(subtopology, EMPTY), target.get(subtopology, EMPTY)
        free = frozenset(number for number in wanted - before if aim.is_free(role, subtopology, number, member))
        is_unreleased |= len(free) < len(wanted - before)
        if before & wanted:
            kept[subtopology] = before & wanted
        if before - wanted:
            revoked[subtopology] = before - wanted
        if free:
            given[subtopology] = free
    return _Difference(kept, revoked, given, is_unreleased)


def _since(epochs: EpochTasks, tasks: Tasks) -> EpochTasks:
    """Return these tasks with the epochs in which the member received them."""
    return {
        subtopology: {number: epochs[subtopology][number] for number in sorted(numbers)}
        for subtopology, numbers in tasks.items()
    }


def _united(difference: _Difference) -> Tasks:
    kept, given = difference.kept, difference.given
    return {key: kept.get(key, EMPTY) | given.get(key, EMPTY) for key in sorted({*kept, *given})}
