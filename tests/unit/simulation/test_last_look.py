"""A judge's look after a turn that has changed nothing costs nothing, and no change of a partition escapes it."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_broker.replication.isr import InSync
from oncelog_broker.replication.replica import Replica
from oncelog_simulation.judges.last_look import DIRECTOR, LastLook, assignments_noted
from oncelog_simulation.plan import Plan, Strike
from oncelog_simulation.run import _Looking, run
from oncelog_simulation.scenario import WholeCluster
from oncelog_simulation.world import World

MACHINE: Any = SimpleNamespace(name="broker-1", number=1)


class Facts:
    """Reads the one fact of each partition, and counts the reads."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self, partition: Any) -> tuple[Any, ...]:
        self.reads += 1
        return (partition.value,)


class Hashable(SimpleNamespace):
    """A partition with one fact."""

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__

    def __init__(self, value: int) -> None:
        super().__init__(value=value, in_sync=object(), log=SimpleNamespace(state=object(), _content=object()))


def test_a_look_reads_no_fact_until_something_is_assigned() -> None:
    world: Any = SimpleNamespace(assigned=defaultdict(list))
    facts, hosted = Facts(), [Hashable(value=1), Hashable(value=2)]
    last: Any = LastLook(facts)
    assert [change[1:] for change in last.changed(world, MACHINE, hosted)] == [((1,), None), ((2,), None)]
    assert (last.changed(world, MACHINE, hosted), facts.reads) == ([], 2)
    hosted[1].value = 3
    world.assigned["broker-1"].append(id(hosted[1]))
    assert last.changed(world, MACHINE, hosted) == [(hosted[1], (3,), (2,))]
    assert facts.reads == 3, "the other partition was not read again"


@pytest.mark.parametrize("host", ["broker-1", DIRECTOR])
def test_what_the_broker_or_the_world_itself_assigns_is_noticed(host: str) -> None:
    world: Any = SimpleNamespace(assigned=defaultdict(list))
    facts, hosted = Facts(), [Hashable(value=1)]
    last: Any = LastLook(facts)
    last.changed(world, MACHINE, hosted)
    hosted[0].value = 2
    world.assigned[host].append(id(hosted[0].log.state))
    assert last.changed(world, MACHINE, hosted) == [(hosted[0], (2,), (1,))]


def test_a_partition_that_is_hosted_again_is_compared_with_its_last_facts() -> None:
    world: Any = SimpleNamespace(assigned=defaultdict(list))
    each = Hashable(value=1)
    last: Any = LastLook(Facts())
    last.changed(world, MACHINE, [each])
    assert last.changed(world, MACHINE, []) == []
    each.value = 2
    assert last.changed(world, MACHINE, [each]) == [(each, (2,), (1,))]


def test_a_partition_whose_log_was_replaced_is_read_after_assignments_to_the_new_log() -> None:
    world: Any = SimpleNamespace(assigned=defaultdict(list))
    hosted = [Hashable(value=1), Hashable(value=1)]
    last: Any = LastLook(Facts())
    last.changed(world, MACHINE, hosted)
    hosted[0].log = SimpleNamespace(state=object(), _content=object())
    world.assigned["broker-1"].append(id(hosted[0]))
    assert last.changed(world, MACHINE, hosted) == []
    hosted[0].value = 2
    world.assigned["broker-1"].append(id(hosted[0].log.state))
    assert last.changed(world, MACHINE, hosted) == [(hosted[0], (2,), (1,))]


def test_all_partitions_are_read_after_an_assignment_to_an_unknown_object_but_none_after_one_that_does_not_matter() -> (
    None
):
    world: Any = SimpleNamespace(assigned=defaultdict(list))
    hosted, other = [Hashable(value=1), Hashable(value=1)], Hashable(value=1)
    facts = Facts()
    last: Any = LastLook(facts)
    last.changed(world, MACHINE, hosted, [other])
    world.assigned["broker-1"].append(id(other.in_sync))
    assert (last.changed(world, MACHINE, hosted, [other]), facts.reads) == ([], 2)
    hosted[1].value = 2
    world.assigned["broker-1"].append(id(object))
    assert last.changed(world, MACHINE, hosted, [other]) == [(hosted[1], (2,), (1,))]
    assert facts.reads == 4


def test_assignments_are_noted_during_a_run_alone() -> None:
    world = World(Plan(1))
    with assignments_noted(world):
        in_sync = InSync((1, 2))
        assert world.assigned is not None
        before = len(world.assigned[DIRECTOR])
        in_sync.committed = (1,)
        assert world.assigned[DIRECTOR][before:] == [id(in_sync)]
    assert world.assigned is None
    assert "__setattr__" not in vars(Replica) | vars(InSync)
    world.end()


def test_a_run_finds_the_same_whether_assignments_are_noted_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    strikes = (Strike(1.0, "kill a leader", ("leader",), 0.5, 0.3), Strike(2.0, "resets", ("broker-1",), 0.0, 0.5))
    plan = Plan(7, seconds=4.0, strikes=strikes, workloads=("writer-1", "payer-1"))
    noted = run(plan, WholeCluster())
    looks = LastLook.changed

    def scanning(self: LastLook, world: World, *arguments: Any) -> Any:
        world.assigned = None
        return looks(self, world, *arguments)

    monkeypatch.setattr(LastLook, "changed", scanning)
    assert run(plan, WholeCluster()).digest == noted.digest


class Looks:
    """A judge that counts its looks."""

    name = "looks"

    def __init__(self, *, sees_only_partitions: bool) -> None:
        self.sees_only_partitions = sees_only_partitions
        self.count = 0

    def look(self, world: Any, machine: Any) -> tuple[str, ...]:
        self.count += 1
        return ()


def test_judges_look_only_after_turns_that_may_have_changed_what_they_see() -> None:
    image = SimpleNamespace(topic_configs={})
    membership = SimpleNamespace(metadata=SimpleNamespace(image=image))
    machine = SimpleNamespace(broker=SimpleNamespace(parts=SimpleNamespace(membership=membership)))
    store = SimpleNamespace(zxid=1)
    world: Any = SimpleNamespace(store=store, power_cuts=0, assigned=defaultdict(list), brokers={"broker-1": machine})
    partitions, everything = Looks(sees_only_partitions=True), Looks(sees_only_partitions=False)
    looking: Any = _Looking(world, [partitions, everything])  # type: ignore[list-item]
    process: Any = SimpleNamespace(host="broker-1")

    def turn(*, has_run_code: bool = True) -> tuple[int, int]:
        before = partitions.count, everything.count
        looking.after_turn(process, has_run_code)
        return partitions.count - before[0], everything.count - before[1]

    assert turn() == (1, 1)
    assert turn() == (0, 1)
    assert turn(has_run_code=False) == (0, 0)
    world.assigned["broker-1"].append(1)
    assert turn() == (1, 1)
    world.assigned[DIRECTOR].append(1)
    assert turn() == (1, 1)
    store.zxid = 2
    assert turn(has_run_code=False) == (1, 1)
    world.power_cuts = 1
    assert turn(has_run_code=False) == (1, 1)
    image.topic_configs = {}
    assert turn() == (1, 1)
    machine.broker = SimpleNamespace(parts=machine.broker.parts)
    assert turn() == (1, 1)
