"""The assignor of streams groups with arbitrary members, processes, topologies and previous assignments."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from oncelog_broker.coordinator.group.assigning.sticky_tasks import TaskGroup, TaskMember, _State, assign_sticky
from oncelog_broker.coordinator.group.streams_tasks import NO_TARGET, Task, Tasks, TaskSet
from oncelog_broker.runtime.steps import run_steps

HAD = st.dictionaries(st.sampled_from("0123"), st.frozensets(st.integers(0, 9), min_size=1), max_size=3)


@st.composite
def groups(draw: st.DrawFn, *, standbys: int | None = None) -> TaskGroup:
    """Generate arbitrary members, whose previous assignments may even have the same task twice, or a task that no
    longer exists.
    """
    names = draw(st.lists(st.text("mnop", min_size=1, max_size=3), min_size=1, max_size=7, unique=True))
    members = [TaskMember(name, draw(st.sampled_from("pqr")), TaskSet(draw(HAD), draw(HAD))) for name in sorted(names)]
    subtopologies = draw(
        st.dictionaries(st.sampled_from("0123"), st.tuples(st.integers(1, 8), st.booleans()), max_size=4)
    )
    return TaskGroup(members, subtopologies, draw(st.integers(0, 2)) if standbys is None else standbys)


def assign(group: TaskGroup) -> dict[str, TaskSet]:
    return run_steps(assign_sticky(group))


def each(tasks: Tasks) -> list[Task]:
    return [(name, number) for name, numbers in tasks.items() for number in numbers]


def with_targets(group: TaskGroup, targets: dict[str, TaskSet]) -> TaskGroup:
    return group._replace(members=[member._replace(target=targets[member.member_id]) for member in group.members])


@given(group=groups())
@examples(100, of=400)
def test_each_task_is_active_once_and_never_twice_in_a_process(group: TaskGroup) -> None:
    targets = assign(group)
    assert targets.keys() == {member.member_id for member in group.members}
    active = Counter(task for target in targets.values() for task in each(target.active))
    wanted = {(name, number): stateful for name, (n, stateful) in group.subtopologies.items() for number in range(n)}
    assert active == Counter(list(wanted))
    processes = {member.member_id: member.process_id for member in group.members}
    holders = Counter(
        (processes[member_id], task)
        for member_id, target in targets.items()
        for task in (*each(target.active), *each(target.standby))
    )
    assert all(count == 1 for count in holders.values())
    standbys = Counter(task for target in targets.values() for task in each(target.standby))
    possible = min(group.standbys, len(set(processes.values())) - 1)
    assert standbys == Counter({task: possible for task, stateful in wanted.items() if stateful and possible})
    assert all(all(target.active.values()) and all(target.standby.values()) for target in targets.values())


@given(group=groups())
@examples(100, of=400)
def test_active_tasks_are_balanced(group: TaskGroup) -> None:
    sizes = [len(each(target.active)) for target in assign(group).values()]
    assert max(sizes) - min(sizes) <= 1


@given(group=groups())
@examples(100, of=400)
def test_nothing_moves_without_a_change(group: TaskGroup) -> None:
    """A second assignment may still move standby tasks once, because their first places may not have been balanced."""
    targets = assign(group)
    again = assign(with_targets(group, targets))
    assert {name: target.active for name, target in again.items()} == {
        name: target.active for name, target in targets.items()
    }


@given(group=groups(standbys=0), leaver=st.integers(0, 6))
@examples(100, of=300)
def test_no_task_of_those_who_stay_moves_when_a_member_leaves(group: TaskGroup, leaver: int) -> None:
    targets = assign(group)
    members = with_targets(group, targets).members
    left = [member for number, member in enumerate(members) if number != leaver % len(members)]
    if left:
        after = assign(group._replace(members=left))
        for member in left:
            assert set(each(targets[member.member_id].active)) <= set(each(after[member.member_id].active))


@given(group=groups(standbys=0))
@examples(100, of=300)
def test_a_new_member_takes_only_its_share(group: TaskGroup) -> None:
    targets = assign(group)
    grown = with_targets(group, targets)
    members = sorted([*grown.members, TaskMember("zz", "z", TaskSet())])
    after = assign(grown._replace(members=members))
    moved = sum(len(set(each(targets[name].active)) - set(each(after[name].active))) for name in targets)
    assert moved == len(each(after["zz"].active))


def test_a_task_goes_to_a_member_with_its_state() -> None:
    """An active task of a member that has left goes to the member with the standby task, unless that member already has
    its share of tasks.
    """
    new = TaskMember("a", "p", TaskSet())
    ready = TaskMember("b", "q", TaskSet({"0": frozenset({1})}, {"0": frozenset({0})}))
    targets = assign(TaskGroup([new, ready], {"0": (3, True)}, 0))
    assert targets["b"].active == {"0": {0, 1}}
    targets = assign(TaskGroup([new, ready], {"0": (2, True)}, 0))
    assert targets["b"].active == {"0": {1}}


def test_standby_tasks_of_many_members_in_few_processes() -> None:
    """The search for a member of another process does not pass over each member of the processes that have the task."""
    members = [TaskMember(f"m{number:03}", "p" if number else "q", NO_TARGET) for number in range(400)]
    looks = 0

    class Counted(set[Task]):
        def __contains__(self, task: object) -> bool:
            nonlocal looks
            looks += 1
            return super().__contains__(task)

    state = _State(TaskGroup(members, {"0": (300, True)}, 1))
    counted = {"p": Counted(), "q": Counted()}
    for member in members:
        state._holders[member.member_id].process_tasks = counted[member.process_id]
    run_steps(state.assign_active())
    run_steps(state.assign_standbys())
    assert sum(len(each(state.target_of(member.member_id).standby)) for member in members) == 300
    assert looks <= 2 * 300
