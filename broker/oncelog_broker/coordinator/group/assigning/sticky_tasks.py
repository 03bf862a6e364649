"""The assignor of streams groups, `sticky`: members keep the tasks that they have, as far as that is balanced.

Source: Kafka 4.3's StickyTaskAssignor, without its dependence on the order of hash maps.

1. Active tasks, each to one member, at most ceil(tasks / members) each: to its previous member, else to a previous
   standby, which has the state already, else to the member with the fewest tasks.
2. Standby tasks of stateful subtopologies, at most ceil(all tasks / members) each as far as possible: to the previous
   active member, else to a previous standby, else to the member with the fewest tasks. Never to a process that has the
   task already: its members share a state directory. Where too few processes are there, a task has fewer standbys.

Both quotas fall as members fill, so that the numbers of tasks differ by one at most. There are no warm-up tasks in
Kafka 4.3. Pure, and total: every input has an assignment.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from oncelog_broker.coordinator.group.assigning.spec import UNITS_PER_STEP
from oncelog_broker.coordinator.group.streams.tasks import EMPTY, Task, TaskSet
from oncelog_broker.runtime.steps import Steps

STICKY: Final = "sticky"


class TaskMember(NamedTuple):
    """A member: `target` is its previous target assignment."""

    member_id: str
    process_id: str
    target: TaskSet


class TaskGroup(NamedTuple):
    """`subtopologies`: the number of tasks of each, and whether it is stateful. `standbys`: how many standby tasks each
    stateful task is to have. `members` are in the order of their ids."""

    members: Sequence[TaskMember]
    subtopologies: Mapping[str, tuple[int, bool]]
    standbys: int


def assign_sticky(group: TaskGroup) -> Steps[dict[str, TaskSet]]:
    """The target of each member."""
    state = _State(group)
    if group.members:
        yield from state.assign_active()
        if group.standbys > 0:
            yield from state.assign_standbys()
    return {member.member_id: state.target_of(member.member_id) for member in group.members}


class _Quota:
    """How many of `tasks` each of `members` may have. It falls when members are full."""

    __slots__ = ("_members", "_tasks", "value")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.value = self._each()

    def _each(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0

    def note(self, count: int) -> None:
        """A member has got a task, its `count`-th one."""
        if count == self.value and self._members:
            self._members -= 1
            self._tasks -= count
            self.value = self._each()


class _State:
    """An assignment in the making. `counts`: how many tasks each member has got, in any role."""

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._active: dict[str, set[Task]] = {member.member_id: set() for member in group.members}
        self._standby: dict[str, set[Task]] = {member.member_id: set() for member in group.members}
        self._counts = dict.fromkeys(self._active, 0)
        self._process = {member.member_id: member.process_id for member in group.members}
        self._of_process: dict[str, set[Task]] = {process: set() for process in self._process.values()}
        self._was_active: dict[Task, str] = {}
        self._was_standby: dict[Task, list[str]] = {}
        for member in group.members:
            self._was_active |= dict.fromkeys(_tasks(member.target.active), member.member_id)
            for task in _tasks(member.target.standby):
                self._was_standby.setdefault(task, []).append(member.member_id)
        self._rank = self._ranks()
        counts = group.subtopologies.values()
        active = sum(tasks for tasks, _ in counts)
        standby = group.standbys * sum(tasks for tasks, is_stateful in counts if is_stateful)
        self._active_quota = _Quota(active, len(group.members))
        self._total_quota = _Quota(active + standby, len(group.members))

    def _ranks(self) -> dict[str, int]:
        """Orders members with the same number of tasks so that each process gets one before any gets two."""
        seen: dict[str, int] = {}
        rounds = []
        for member_id, process in self._process.items():
            seen[process] = seen.get(process, -1) + 1
            rounds.append((seen[process], member_id))
        return {member_id: rank for rank, (_, member_id) in enumerate(sorted(rounds))}

    def target_of(self, member_id: str) -> TaskSet:
        return TaskSet(_by_subtopology(self._active[member_id]), _by_subtopology(self._standby[member_id]))

    # --- active tasks

    def assign_active(self) -> Steps[None]:
        left: list[Task] = []
        done = 0
        # Tasks of the same partition belong to the same member, where topics are assigned as ranges: it keeps them all.
        for task in self._each_task(lambda is_stateful: True, lambda task: (task[1], task[0])):
            previous = self._was_active.get(task)
            if previous is None or self._counts[previous] >= self._active_quota.value:
                left.append(task)
            else:
                self._give_active(previous, task)
            if (done := done + 1) % UNITS_PER_STEP == 0:
                yield None
        unknown: list[Task] = []
        for task in left:
            ready = self._least_loaded(self._was_standby.get(task, ()))
            if ready is None or self._counts[ready] >= self._active_quota.value:
                unknown.append(task)
            else:
                self._give_active(ready, task)
            if (done := done + 1) % UNITS_PER_STEP == 0:
                yield None
        queue = self._queue()
        for task in sorted(unknown):
            _, rank, member_id = heapq.heappop(queue)
            self._give_active(member_id, task)
            heapq.heappush(queue, (self._counts[member_id], rank, member_id))
            if (done := done + 1) % UNITS_PER_STEP == 0:
                yield None

    def _give_active(self, member_id: str, task: Task) -> None:
        self._active[member_id].add(task)
        self._count(member_id, task)
        self._active_quota.note(self._counts[member_id])

    # --- standby tasks

    def assign_standbys(self) -> Steps[None]:
        left: list[tuple[Task, int]] = []
        done = 0
        for task in self._each_task(bool, lambda task: (-task[1], task[0])):
            missing = self._group.standbys
            while missing and (member_id := self._previous_for_standby(task)) is not None:
                self._give_standby(member_id, task)
                missing -= 1
            if missing:
                left.append((task, missing))
            if (done := done + 1) % UNITS_PER_STEP == 0:
                yield None
        queue = self._queue()
        for task, missing in sorted(left, reverse=True):
            for _ in range(missing):
                self._give_to_least_loaded(queue, task)
            if (done := done + 1) % UNITS_PER_STEP == 0:
                yield None

    def _previous_for_standby(self, task: Task) -> str | None:
        """The member with the state of the task that may have it as a standby task; None if there is none."""
        active = self._was_active.get(task)
        if active is not None and self._has_room(active, task):
            return active
        return self._least_loaded(
            member_id for member_id in self._was_standby.get(task, ()) if self._has_room(member_id, task)
        )

    def _has_room(self, member_id: str, task: Task) -> bool:
        has_task = task in self._of_process[self._process[member_id]]
        return not has_task and self._counts[member_id] < self._total_quota.value

    def _give_to_least_loaded(self, queue: list[tuple[int, int, str]], task: Task) -> None:
        """Give a standby task to the member with the fewest tasks whose process does not have it, if any."""
        passed_over = []
        while queue:
            count, rank, member_id = heapq.heappop(queue)
            if task not in self._of_process[self._process[member_id]]:
                self._give_standby(member_id, task)
                heapq.heappush(queue, (count + 1, rank, member_id))
                break
            passed_over.append((count, rank, member_id))
        for entry in passed_over:
            heapq.heappush(queue, entry)

    def _give_standby(self, member_id: str, task: Task) -> None:
        self._standby[member_id].add(task)
        self._count(member_id, task)

    # --- both

    def _each_task(self, takes: Callable[[bool], bool], order: Callable[[Task], object]) -> list[Task]:
        """The tasks of the subtopologies that `takes` accepts by whether they are stateful."""
        subtopologies = self._group.subtopologies.items()
        tasks = [
            (name, number) for name, (count, stateful) in subtopologies if takes(stateful) for number in range(count)
        ]
        return sorted(tasks, key=order)  # type: ignore[arg-type]

    def _count(self, member_id: str, task: Task) -> None:
        self._of_process[self._process[member_id]].add(task)
        self._counts[member_id] += 1
        self._total_quota.note(self._counts[member_id])

    def _least_loaded(self, members: Iterable[str]) -> str | None:
        return min(members, key=lambda member_id: (self._counts[member_id], self._rank[member_id]), default=None)

    def _queue(self) -> list[tuple[int, int, str]]:
        """A heap of all members: number of tasks, rank, member id."""
        queue = [(count, self._rank[member_id], member_id) for member_id, count in self._counts.items()]
        heapq.heapify(queue)
        return queue


def _tasks(tasks: Mapping[str, frozenset[int]]) -> Iterable[Task]:
    return ((subtopology, number) for subtopology, numbers in tasks.items() for number in numbers)


def _by_subtopology(tasks: Iterable[Task]) -> dict[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    for subtopology, number in tasks:
        found[subtopology] = found.get(subtopology, EMPTY) | {number}
    return found
