"""The assignor `sticky` of streams groups: members keep their tasks as long as the numbers of tasks per member stay
balanced.

Kafka 4.3's counterpart is StickyTaskAssignor. Kafka's result depends on the order of hash maps; the result of this
assignor does not.

1. Each active task gets one member, and each member at most ceil(tasks / members) active tasks. A task stays at its
   previous member if the limits allow it. A task that cannot stay goes to a member that has the task as a standby task
   and therefore its state, or to the member with the fewest tasks.
2. Each task of a stateful subtopology gets standby tasks. A standby task goes to the first of these members that may
   get it: the member that previously ran the active task, a member that had the standby task before, the member with
   the fewest tasks. Members of one process share a state directory, so a process never gets the same task twice. If
   there are too few processes, a task gets fewer standby tasks.

A member that has reached the maximum number of active tasks gets no more, and the maximum is computed again for the
remaining tasks and members. So the members' numbers of active tasks differ by at most one. Kafka 4.3 assigns no warm-up
tasks. Pure. The assignor returns an assignment for every input.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from oncelog_broker.coordinator.group.assigning.spec import UNITS_PER_STEP
from oncelog_broker.coordinator.group.streams_tasks import Task, Tasks, TaskSet
from oncelog_broker.runtime.steps import Steps

STICKY: Final = "sticky"


class TaskMember(NamedTuple):
    """A group member with its previous target assignment."""

    member_id: str
    process_id: str
    target: TaskSet


class TaskGroup(NamedTuple):
    """The input of the assignor for streams groups: tasks and members. `subtopologies` has the number of tasks of each
    subtopology, and whether it is stateful. `standbys` is the wanted number of standby tasks of each stateful task.
    `members` are sorted by id."""

    members: Sequence[TaskMember]
    subtopologies: Mapping[str, tuple[int, bool]]
    standbys: int


def assign_sticky(group: TaskGroup) -> Steps[dict[str, TaskSet]]:
    """Return the target assignment of each member."""
    state = _State(group)
    yield from state.note_previous()
    if group.members:
        yield from state.assign_active()
        if group.standbys > 0:
            yield from state.assign_standbys()
    targets = {}
    for member in group.members:
        targets[member.member_id] = state.target_of(member.member_id)
        yield None
    return targets


class _Quota:
    """The maximum number of tasks that each member may have. Each time that a member has reached the maximum, it is
    computed again for the remaining tasks and members.
    """

    __slots__ = ("_members", "_tasks", "value")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.value = self._each()

    def _each(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0

    def note(self, count: int) -> None:
        """Update the maximum after a member has received its task number `count`."""
        if count == self.value and self._members:
            self._members -= 1
            self._tasks -= count
            self.value = self._each()


class _Holder:
    """A member with the tasks that the assignor has given it so far. `rank` orders members with equal numbers of
    tasks."""

    __slots__ = ("active", "count", "process_tasks", "rank", "standby")

    def __init__(self, process_tasks: set[Task]) -> None:
        self.active: dict[str, set[int]] = {}
        self.standby: dict[str, set[int]] = {}
        self.count = 0
        self.process_tasks = process_tasks
        """The tasks of all members that run in the same process as this member."""
        self.rank = 0

    def give(self, task: Task, tasks: dict[str, set[int]]) -> None:
        """Add a task to `tasks`, which is this member's set `active` or `standby`."""
        tasks.setdefault(task[0], set()).add(task[1])
        self.process_tasks.add(task)
        self.count += 1


class _State:
    """The state of a task assignment while the assignor computes it."""

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        of_process: dict[str, set[Task]] = {member.process_id: set() for member in group.members}
        self._holders = {member.member_id: _Holder(of_process[member.process_id]) for member in group.members}
        self._set_ranks()
        self._was_active: dict[Task, _Holder] = {}
        self._was_standby: dict[Task, list[_Holder]] = {}
        counts = group.subtopologies.values()
        active = sum(tasks for tasks, _ in counts)
        standby = group.standbys * sum(tasks for tasks, is_stateful in counts if is_stateful)
        self._active_quota = _Quota(active, len(group.members))
        self._total_quota = _Quota(active + standby, len(group.members))

    def _set_ranks(self) -> None:
        """Rank the members so that every process gets a first task before any process gets a second task."""
        seen: dict[str, int] = {}
        rounds = []
        for member in self._group.members:
            seen[member.process_id] = seen.get(member.process_id, -1) + 1
            rounds.append((seen[member.process_id], member.member_id))
        for rank, (_, member_id) in enumerate(sorted(rounds)):
            self._holders[member_id].rank = rank

    def note_previous(self) -> Steps[None]:
        """Index the previous targets by task."""
        for member in self._group.members:
            holder = self._holders[member.member_id]
            self._was_active |= dict.fromkeys(_tasks(member.target.active), holder)
            for task in _tasks(member.target.standby):
                self._was_standby.setdefault(task, []).append(holder)
            yield None

    def target_of(self, member_id: str) -> TaskSet:
        holder = self._holders[member_id]
        return TaskSet(_frozen(holder.active), _frozen(holder.standby))

    # --- assigning active tasks

    def assign_active(self) -> Steps[None]:
        left: list[Task] = []
        done = 0
        # The tasks are ordered by partition, because the previous assignment has often given all tasks of one partition
        # to one member.
        for task in self._by_partition(only_stateful=False):
            previous = self._was_active.get(task)
            if previous is None or previous.count >= self._active_quota.value:
                left.append(task)
            else:
                self._give_active(previous, task)
            if (done := done + 1) % UNITS_PER_STEP == 0:
                yield None
        unknown = set[Task]()
        for task in left:
            ready = _least_loaded(self._was_standby.get(task, ()))
            if ready is None or ready.count >= self._active_quota.value:
                unknown.add(task)
            else:
                self._give_active(ready, task)
            if (done := done + 1) % UNITS_PER_STEP == 0:
                yield None
        queue = self._queue()
        for task in self._by_subtopology():
            if task in unknown:
                holder = heapq.heappop(queue)[2]
                self._give_active(holder, task)
                heapq.heappush(queue, (holder.count, holder.rank, holder))
            if (done := done + 1) % UNITS_PER_STEP == 0:
                yield None

    def _give_active(self, holder: _Holder, task: Task) -> None:
        holder.give(task, holder.active)
        self._active_quota.note(holder.count)
        self._total_quota.note(holder.count)

    # --- assigning standby tasks

    def assign_standbys(self) -> Steps[None]:
        missing: dict[Task, int] = {}
        done = 0
        for task in self._by_partition(only_stateful=True):
            count = self._group.standbys
            while count and (holder := self._previous_for_standby(task)) is not None:
                self._give_standby(holder, task)
                count -= 1
            if count:
                missing[task] = count
            if (done := done + 1) % UNITS_PER_STEP == 0:
                yield None
        processes = self._process_queues()
        for task in self._by_subtopology():
            for _ in range(missing.get(task, 0)):
                self._give_to_least_loaded(processes, task)
            if (done := done + 1) % UNITS_PER_STEP == 0:
                yield None

    def _previous_for_standby(self, task: Task) -> _Holder | None:
        """Return a member that has the state of the task and may get it as a standby task; None if there is no such
        member."""
        active = self._was_active.get(task)
        if active is not None and self._has_room(active, task):
            return active
        return _least_loaded(holder for holder in self._was_standby.get(task, ()) if self._has_room(holder, task))

    def _has_room(self, holder: _Holder, task: Task) -> bool:
        return task not in holder.process_tasks and holder.count < self._total_quota.value

    def _give_to_least_loaded(self, processes: list[list[_Entry]], task: Task) -> None:
        """Give a standby task to the member with the fewest tasks among the processes without this task, if there is
        such a process. `processes` is a heap of `_process_queues`.
        """
        passed_over = []
        while processes:
            queue = heapq.heappop(processes)
            passed_over.append(queue)
            holder = queue[0][2]
            if task not in holder.process_tasks:
                self._give_standby(holder, task)
                heapq.heapreplace(queue, (holder.count, holder.rank, holder))
                break
        for queue in passed_over:
            heapq.heappush(processes, queue)

    def _give_standby(self, holder: _Holder, task: Task) -> None:
        holder.give(task, holder.standby)
        self._total_quota.note(holder.count)

    # --- helpers for active tasks and standby tasks -------------------------------------------------------------------

    def _by_partition(self, *, only_stateful: bool) -> Iterator[Task]:
        """Yield the tasks, ordered by partition."""
        counts = [
            (name, count)
            for name, (count, is_stateful) in sorted(self._group.subtopologies.items())
            if is_stateful or not only_stateful
        ]
        for number in range(max((count for _, count in counts), default=0)):
            for name, count in counts:
                if number < count:
                    yield name, number

    def _by_subtopology(self) -> Iterator[Task]:
        """Yield the tasks, ordered by subtopology."""
        for name, (count, _) in sorted(self._group.subtopologies.items()):
            for number in range(count):
                yield name, number

    def _queue(self) -> list[_Entry]:
        """Return a heap of all members, ordered by number of tasks. No two members have the same rank, so the heap
        never compares the member objects.
        """
        queue = [(holder.count, holder.rank, holder) for holder in self._holders.values()]
        heapq.heapify(queue)
        return queue

    def _process_queues(self) -> list[list[_Entry]]:
        """Return a heap with one heap of members for each process; the heaps of members are ordered by their first
        member. A search for a process without a certain task skips all members of a process at once."""
        queues: dict[str, list[_Entry]] = {member.process_id: [] for member in self._group.members}
        for member in self._group.members:
            holder = self._holders[member.member_id]
            queues[member.process_id].append((holder.count, holder.rank, holder))
        for queue in queues.values():
            heapq.heapify(queue)
        processes = list(queues.values())
        heapq.heapify(processes)
        return processes


_Entry = tuple[int, int, _Holder]
"""An entry of the heap of members: number of tasks, rank, member."""


def _least_loaded(holders: Iterable[_Holder]) -> _Holder | None:
    return min(holders, key=lambda holder: (holder.count, holder.rank), default=None)


def _tasks(tasks: Tasks) -> Iterator[Task]:
    return ((subtopology, number) for subtopology, numbers in tasks.items() for number in numbers)


def _frozen(tasks: Mapping[str, set[int]]) -> Tasks:
    return {subtopology: frozenset(numbers) for subtopology, numbers in tasks.items()}
