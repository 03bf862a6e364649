"""Tasks of streams groups: values in memory, and their forms in messages and in log records. Pure.

A task is a pair of subtopology and partition number. A member has tasks in three roles: an *active* task processes
records, a *standby* task keeps a copy of the state of an active task, and a *warm-up* task prepares this state at a
member that will later get the active task. All values are immutable by convention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from oncelog_protocol.light_classes import NamedTuple

Tasks = Mapping[str, frozenset[int]]
"""Tasks without epochs: subtopology id -> partition numbers."""
EpochTasks = Mapping[str, Mapping[int, int]]
"""Tasks with epochs: subtopology id -> partition -> the epoch in which the member was given the task (KIP-1251)."""
Task = tuple[str, int]

NO_TASKS: Final[Tasks] = MappingProxyType({})
EMPTY: Final[frozenset[int]] = frozenset()


class Role(Enum):
    """The role in which a member has a task."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARMUP = "warm-up"


class TaskSet(NamedTuple):
    """The tasks of one member in each role (active, standby, warm-up), without epochs. Targets and claims of members
    have this type.
    """

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS


class CurrentTasks(NamedTuple):
    """The current tasks of one member in each role. Only active tasks have epochs, because the epochs are needed only
    to check offset commits.
    """

    active: EpochTasks = MappingProxyType({})
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    @property
    def tasks(self) -> TaskSet:
        """These tasks without their epochs."""
        return TaskSet(without_epochs(self.active), self.standby, self.warmup)


NO_TARGET: Final = TaskSet()
NOTHING: Final = CurrentTasks()


class TaskIdsMessage(Protocol):
    """Type of the tasks of one subtopology, in any protocol message."""

    subtopology_id: str
    partitions: list[int]


class CurrentTaskIdsMessage(TaskIdsMessage, Protocol):
    """Type of the tasks of one subtopology in the record of a current assignment."""

    assignment_epochs: list[int] | None


M = TypeVar("M")


def without_epochs(tasks: EpochTasks) -> Tasks:
    """Return the tasks without their epochs."""
    return {subtopology: frozenset(epochs) for subtopology, epochs in tasks.items()}


def tasks_of(listed: Iterable[TaskIdsMessage]) -> Tasks:
    """Return the tasks that a message contains."""
    return {ids.subtopology_id: frozenset(ids.partitions) for ids in listed if ids.partitions}


def epoch_tasks_of(listed: Iterable[CurrentTaskIdsMessage], member_epoch: int) -> EpochTasks:
    """Return the active tasks that a record contains. A task without an epoch in the record gets `member_epoch`."""
    return {
        ids.subtopology_id: dict(
            zip(ids.partitions, ids.assignment_epochs, strict=False)
            if ids.assignment_epochs is not None
            else ((partition, member_epoch) for partition in ids.partitions)
        )
        for ids in listed
        if ids.partitions
    }


def listed(tasks: Tasks | EpochTasks, make: Callable[[str, list[int]], M]) -> list[M]:
    """Return the sorted tasks in the form of a message. The function `make` creates the entry of one subtopology."""
    return [make(subtopology, sorted(tasks[subtopology])) for subtopology in sorted(tasks)]


def owned_of(
    active: Sequence[TaskIdsMessage] | None,
    standby: Sequence[TaskIdsMessage] | None,
    warmup: Sequence[TaskIdsMessage] | None,
) -> TaskSet | None:
    """Return the tasks that a heartbeat claims for its member; None if the heartbeat makes no claim."""
    if active is None or standby is None or warmup is None:
        return None
    return TaskSet(tasks_of(active), tasks_of(standby), tasks_of(warmup))


def owns_any(owned: TaskSet | None, tasks: CurrentTasks) -> bool:
    """Whether the member may still own any of these tasks in the same role. Returns True if the heartbeat does not list
    the owned tasks.
    """
    if owned is None:
        return True
    return any(
        not mine.isdisjoint(other.get(subtopology, EMPTY))
        for claimed, other in zip(owned, tasks, strict=True)
        for subtopology, mine in claimed.items()
    )


def is_within(owned: TaskSet | None, tasks: CurrentTasks) -> bool:
    """Whether the member lists the tasks that it owns and each listed task is in `tasks` in the same role."""
    if owned is None:
        return False
    return all(
        partition in other.get(subtopology, EMPTY)
        for claimed, other in zip(owned, tasks, strict=True)
        for subtopology, partitions in claimed.items()
        for partition in partitions
    )
