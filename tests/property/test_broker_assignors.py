"""The broker's assignors (KIP-848) with arbitrary members, topics, subscriptions and previous assignments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from oncelog_broker.coordinator.group.assigning.assignors import ASSIGNORS
from oncelog_broker.coordinator.group.assigning.spec import GroupSpec, Subscriber, Targets
from oncelog_broker.coordinator.group.assignments import Target
from oncelog_broker.runtime.steps import run_steps

TOPICS = [letter.encode() * 16 for letter in "abcd"]


@st.composite
def specs(draw: st.DrawFn, *, is_homogeneous: bool | None = None) -> GroupSpec:
    """Generate arbitrary members, whose previous assignments may even contain the same partition twice."""
    partitions = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1))
    homogeneous = draw(st.booleans()) if is_homogeneous is None else is_homogeneous
    names = draw(st.lists(st.text("mnop", min_size=1, max_size=3), min_size=1, max_size=6, unique=True))
    had = st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 10), min_size=1))
    members = [
        Subscriber(
            name,
            draw(st.sampled_from([None, f"i-{name}"])),
            frozenset(partitions) if homogeneous else draw(st.frozensets(st.sampled_from(sorted(partitions)))),
            draw(had),
        )
        for name in sorted(names)
    ]
    return GroupSpec(members, partitions, homogeneous)


def assign(name: str, spec: GroupSpec) -> Targets:
    return run_steps(ASSIGNORS[name](spec))


def size(target: Target) -> int:
    return sum(map(len, target.values()))


@given(spec=specs(), name=st.sampled_from(sorted(ASSIGNORS)))
@examples(100, of=300)
def test_each_partition_that_somebody_reads_has_one_reader(spec: GroupSpec, name: str) -> None:
    targets = assign(name, spec)
    assert targets.keys() == {member.member_id for member in spec.members}
    given = [
        (topic, partition) for target in targets.values() for topic, parts in target.items() for partition in parts
    ]
    read = {topic for member in spec.members for topic in member.topics}
    assert sorted(given) == sorted((topic, n) for topic in read for n in range(spec.partitions[topic]))
    for member in spec.members:
        assert targets[member.member_id].keys() <= member.topics
        assert all(targets[member.member_id].values()), "no empty sets"


@given(spec=specs(is_homogeneous=True))
@examples(100, of=300)
def test_uniform_assignments_are_balanced(spec: GroupSpec) -> None:
    sizes = [size(target) for target in assign("uniform", spec).values()]
    assert max(sizes) - min(sizes) <= 1


@given(spec=specs(), name=st.sampled_from(sorted(ASSIGNORS)))
@examples(100, of=300)
def test_partitions_do_not_move_without_a_change(spec: GroupSpec, name: str) -> None:
    targets = assign(name, spec)
    again = spec._replace(members=[member._replace(target=targets[member.member_id]) for member in spec.members])
    assert assign(name, again) == targets


@given(spec=specs(is_homogeneous=True), leaver=st.integers(0, 5))
@examples(80, of=200)
def test_uniform_moves_no_partition_of_remaining_members(spec: GroupSpec, leaver: int) -> None:
    targets = assign("uniform", spec)
    left = [
        member._replace(target=targets[member.member_id])
        for number, member in enumerate(spec.members)
        if number != leaver % len(spec.members)
    ]
    if left:
        after = assign("uniform", spec._replace(members=left))
        for member in left:
            for topic, partitions in targets[member.member_id].items():
                assert partitions <= after[member.member_id].get(topic, frozenset())
