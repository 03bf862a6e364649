"""The assignors agree with those of Apache Kafka's group coordinator on random groups (KIP-848, KIP-932, KIP-1071).

`range` has one right result. The results of the other assignors may differ where two members are equally good for a
partition, because Kafka's depend on the order of hash maps. Of those, the tests compare what the assignors promise: how
many partitions each member gets, and how many partitions move.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from conftest import or_skip
from maven import BUILD, HERE, jars, need

from oncelog_broker.coordinator.group.assigning.assignors import ASSIGNORS
from oncelog_broker.coordinator.group.assigning.simple import assign_simply
from oncelog_broker.coordinator.group.assigning.spec import GroupSpec, Subscriber, Targets
from oncelog_broker.coordinator.group.assigning.sticky_tasks import TaskGroup, TaskMember, assign_sticky
from oncelog_broker.coordinator.group.assignments import Target
from oncelog_broker.coordinator.group.streams_tasks import TaskSet
from oncelog_broker.runtime.steps import run_steps
from oncelog_protocol.uuids import uuid_from_string, uuid_to_string

RELEASE = "4.3.1"
GROUPS = 300
"""Number of random groups for each assignor; each is changed and assigned again `CHANGES` times."""
CHANGES = 3
OPTIONS = ("-Xms64m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
Json = dict[str, Any]


class KafkasAssignors:
    """Runs groups through Kafka's assignors, all in one JVM."""

    def __init__(self) -> None:
        need("java", "javac", "mvn")
        libraries = jars(HERE / "broker" / "pom.xml", RELEASE, "kafka")
        compiled = BUILD / "assignors"
        source = HERE / "java" / "Assignors.java"
        subprocess.run(["javac", "-nowarn", "-cp", f"{libraries}/*", "-d", compiled, source], check=True, timeout=120)
        self._command = ["java", *OPTIONS, "-cp", f"{compiled}:{libraries}/*", "Assignors"]

    def assign(self, groups: Sequence[Json]) -> list[Json]:
        """Return the target assignment of each group."""
        lines = "".join(json.dumps(group) + "\n" for group in groups)
        done = subprocess.run(self._command, input=lines, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        targets = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(targets) == len(groups)
        return targets


@pytest.fixture(scope="module")
def kafka() -> KafkasAssignors:
    return or_skip(KafkasAssignors)


# Groups that read partitions


def topic_id(number: int) -> bytes:
    return (number * 0x9E3779B97F4A7C15F39CC0605CEDC835 + 1).to_bytes(24, "big")[-16:]


def random_group(random_: random.Random, *, is_homogeneous: bool) -> GroupSpec:
    """Return a group whose members have no assignment yet."""
    partitions = {topic_id(number): random_.randint(1, 9) for number in range(random_.randint(1, 5))}
    members = [
        member(random_, random_.random(), partitions, is_homogeneous=is_homogeneous)
        for _ in range(random_.randint(1, 8))
    ]
    return GroupSpec(sorted(members), partitions, is_homogeneous)


def member(random_: random.Random, name: float, partitions: Mapping[bytes, int], *, is_homogeneous: bool) -> Subscriber:
    known = sorted(partitions)
    topics = known if is_homogeneous else random_.sample(known, random_.randint(1, len(known)))
    instance = f"static-{name}" if random_.random() < 0.3 else None
    return Subscriber(f"member-{name}", instance, frozenset(topics), {})


def changed(random_: random.Random, spec: GroupSpec, targets: Targets) -> GroupSpec:
    """Return the group after `targets` were assigned, and then members came and went or a topic grew."""
    partitions = dict(spec.partitions)
    members = [each._replace(target=targets[each.member_id]) for each in spec.members]
    match random_.randrange(4):
        case 0 if len(members) > 1:
            members.remove(random_.choice(members))
        case 1:
            grown = random_.choice(sorted(partitions))
            partitions[grown] += random_.randint(1, 4)
        case 2:
            for _ in range(random_.randint(1, 3)):
                joining = member(random_, random_.random(), partitions, is_homogeneous=spec.is_homogeneous)
                members.append(joining)
        case _:
            pass  # nothing has changed, so nothing may move
    partitions = {topic: number for topic, number in partitions.items() if any(topic in m.topics for m in members)}
    return GroupSpec(sorted(members), partitions, spec.is_homogeneous)


def as_json(assignor: str, spec: GroupSpec) -> Json:
    return {
        "assignor": assignor,
        "homogeneous": spec.is_homogeneous,
        "partitions": {uuid_to_string(topic): number for topic, number in spec.partitions.items()},
        "members": {
            each.member_id: {
                "instance": each.instance_id,
                "topics": sorted(map(uuid_to_string, each.topics)),
                "target": {uuid_to_string(topic): sorted(numbers) for topic, numbers in each.target.items()},
            }
            for each in spec.members
        },
    }


def assign(assignor: str, spec: GroupSpec) -> Targets:
    if assignor == "simple":
        return run_steps(assign_simply(spec.members, {t: range(number) for t, number in spec.partitions.items()}))
    return run_steps(ASSIGNORS[assignor](spec))


def targets_of(answer: Json) -> Targets:
    return {
        member_id: {uuid_from_string(topic): frozenset(numbers) for topic, numbers in target.items()}
        for member_id, target in answer.items()
    }


def random_groups(assignor: str, *, is_homogeneous: bool) -> list[GroupSpec]:
    """Return groups without and with previous assignments."""
    random_ = random.Random(f"{assignor} {is_homogeneous}")
    specs = []
    for _ in range(GROUPS):
        specs.append(random_group(random_, is_homogeneous=is_homogeneous))
        for _ in range(CHANGES):
            specs.append(changed(random_, specs[-1], assign(assignor, specs[-1])))
    return specs


def places(target: Target) -> set[tuple[bytes, int]]:
    return {(topic, number) for topic, numbers in target.items() for number in numbers}


def counts(targets: Targets) -> list[int]:
    """Return how many partitions the members have, in ascending order."""
    return sorted(len(places(target)) for target in targets.values())


def kept(spec: GroupSpec, targets: Targets) -> int:
    """Return how many partitions stay at a member that had them before."""
    return sum(len(places(each.target) & places(targets[each.member_id])) for each in spec.members)


def compared(kafka: KafkasAssignors, assignor: str, specs: Sequence[GroupSpec]) -> Iterable[tuple[Targets, Targets]]:
    answers = kafka.assign([as_json(assignor, spec) for spec in specs])
    return [(assign(assignor, spec), targets_of(answer)) for spec, answer in zip(specs, answers, strict=True)]


@pytest.mark.parametrize("is_homogeneous", [True, False])
def test_ranges_are_those_of_kafka(kafka: KafkasAssignors, is_homogeneous: bool) -> None:
    specs = random_groups("range", is_homogeneous=is_homogeneous)
    for spec, (ours, theirs) in zip(specs, compared(kafka, "range", specs), strict=True):
        assert ours == theirs, spec


def unevenness(totals: Iterable[int]) -> int:
    """Return the sum of the squares: the smaller, the more evenly a given number of partitions is spread."""
    return sum(total * total for total in totals)


def test_uniform_assignments_with_one_subscription_are_as_even_and_as_sticky_as_kafkas(kafka: KafkasAssignors) -> None:
    specs = random_groups("uniform", is_homogeneous=True)
    for spec, (ours, theirs) in zip(specs, compared(kafka, "uniform", specs), strict=True):
        assert holders(ours) == holders(theirs), "each partition has one member"
        assert counts(ours) == counts(theirs), spec
        assert kept(spec, ours) >= kept(spec, theirs), spec


def test_uniform_assignments_with_many_subscriptions_are_as_even_and_as_sticky_as_kafkas(
    kafka: KafkasAssignors,
) -> None:
    """Both assignors improve an assignment step by step, and either may end with the better one."""
    specs = random_groups("uniform", is_homogeneous=False)
    results = compared(kafka, "uniform", specs)
    assert all(holders(ours) == holders(theirs) for ours, theirs in results), "each partition has one member"
    equal = sum(counts(ours) == counts(theirs) for ours, theirs in results)
    assert equal >= 0.95 * len(specs)
    totals = [(unevenness(counts(ours)), unevenness(counts(theirs))) for ours, theirs in results]
    assert sum(ours for ours, _ in totals) <= 1.001 * sum(theirs for _, theirs in totals)
    moves = [(kept(spec, ours), kept(spec, theirs)) for spec, (ours, theirs) in zip(specs, results, strict=True)]
    assert sum(ours for ours, _ in moves) >= 0.999 * sum(theirs for _, theirs in moves)


@pytest.mark.parametrize("is_homogeneous", [True, False])
def test_share_groups_spread_as_evenly_as_kafkas_and_move_less(kafka: KafkasAssignors, is_homogeneous: bool) -> None:
    """Kafka takes a partition from the first member that it finds, which may leave one of its members without any."""
    specs = random_groups("simple", is_homogeneous=is_homogeneous)
    results = compared(kafka, "simple", specs)
    for spec, (ours, theirs) in zip(specs, results, strict=True):
        assert len(holders(ours)) == len(holders(theirs)), spec
        assert holders(ours)[0] >= holders(theirs)[0], spec
        assert counts(ours)[0] >= min(1, counts(theirs)[0]), spec
    totals = [(unevenness(counts(ours)), unevenness(counts(theirs))) for ours, theirs in results]
    assert sum(ours for ours, _ in totals) <= 1.01 * sum(theirs for _, theirs in totals)
    moves = [(kept(spec, ours), kept(spec, theirs)) for spec, (ours, theirs) in zip(specs, results, strict=True)]
    assert sum(ours for ours, _ in moves) > sum(theirs for _, theirs in moves)


def holders(targets: Targets) -> list[int]:
    """Return how many members have each partition, in ascending order."""
    return sorted(Counter(p for target in targets.values() for p in places(target)).values())


# Streams groups, which run tasks


def random_tasks(random_: random.Random) -> TaskGroup:
    subtopologies = {
        str(number): (random_.randint(1, 8), random_.random() < 0.6) for number in range(random_.randint(1, 4))
    }
    return TaskGroup(
        sorted(task_member(random_) for _ in range(random_.randint(1, 6))), subtopologies, random_.randrange(3)
    )


def task_member(random_: random.Random) -> TaskMember:
    return TaskMember(f"member-{random_.random()}", f"process-{random_.randrange(4)}", TaskSet())


def changed_tasks(random_: random.Random, group: TaskGroup, targets: Mapping[str, TaskSet]) -> TaskGroup:
    members = [each._replace(target=targets[each.member_id]) for each in group.members]
    match random_.randrange(3):
        case 0 if len(members) > 1:
            members.remove(random_.choice(members))
        case 1:
            members += [task_member(random_) for _ in range(random_.randint(1, 2))]
        case _:
            pass
    return group._replace(members=sorted(members))


def tasks_json(group: TaskGroup) -> Json:
    return {
        "assignor": "sticky",
        "standbys": str(group.standbys),
        "subtopologies": {
            name: {"tasks": tasks, "stateful": stateful} for name, (tasks, stateful) in group.subtopologies.items()
        },
        "members": {
            each.member_id: {
                "process": each.process_id,
                "active": {name: sorted(numbers) for name, numbers in each.target.active.items()},
                "standby": {name: sorted(numbers) for name, numbers in each.target.standby.items()},
            }
            for each in group.members
        },
    }


def task_places(tasks: Mapping[str, Iterable[int]]) -> set[tuple[str, int]]:
    return {(name, number) for name, numbers in tasks.items() for number in numbers}


def test_tasks_of_streams_groups_are_as_even_and_as_sticky_as_kafkas(kafka: KafkasAssignors) -> None:
    random_ = random.Random("sticky")
    groups = []
    for _ in range(GROUPS):
        groups.append(random_tasks(random_))
        for _ in range(CHANGES):
            groups.append(changed_tasks(random_, groups[-1], run_steps(assign_sticky(groups[-1]))))
    stayed, standbys = [0, 0], [0, 0]
    for group, answer in zip(groups, kafka.assign(list(map(tasks_json, groups))), strict=True):
        ours = {
            name: (task_places(target.active), task_places(target.standby))
            for name, target in run_steps(assign_sticky(group)).items()
        }
        theirs = {
            name: (task_places(target["active"]), task_places(target["standby"])) for name, target in answer.items()
        }
        for number, tasks in enumerate((ours, theirs)):
            stayed[number] += sum(
                len(tasks[each.member_id][0] & task_places(each.target.active)) for each in group.members
            )
            standbys[number] += unevenness(len(active) + len(standby) for active, standby in tasks.values())
        assert unevenness(len(active) for active, _ in ours.values()) <= unevenness(
            len(active) for active, _ in theirs.values()
        )
        assert sum(len(standby) for _, standby in ours.values()) == sum(len(standby) for _, standby in theirs.values())
    assert stayed[0] >= 0.99 * stayed[1]
    assert standbys[0] <= 1.01 * standbys[1]
