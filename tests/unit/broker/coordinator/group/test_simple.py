"""The assignor of share groups gives each member partitions and each partition a member, moving none without need."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from oncelog_broker.coordinator.group.assigning.simple import assign_simply
from oncelog_broker.coordinator.group.assigning.spec import Subscriber, Targets
from oncelog_broker.coordinator.group.assignments import Target
from oncelog_broker.runtime.steps import run_steps

T, U = b"t" * 16, b"u" * 16


def assign(
    members: dict[str, set[bytes]], partitions: dict[bytes, int], old: dict[str, Target] | None = None
) -> Targets:
    subscribers = [
        Subscriber(name, None, frozenset(members[name]), (old or {}).get(name, {})) for name in sorted(members)
    ]
    return run_steps(assign_simply(subscribers, {topic: range(count) for topic, count in partitions.items()}))


def shares(targets: Targets) -> list[int]:
    return [sum(map(len, target.values())) for target in targets.values()]


def holders(targets: Targets) -> Counter[tuple[bytes, int]]:
    return Counter((topic, number) for target in targets.values() for topic, of in target.items() for number in of)


def test_a_single_member_has_all() -> None:
    assert assign({"a": {T}}, {T: 3, U: 2}) == {"a": {T: frozenset({0, 1, 2})}}


def test_members_without_topics_and_partitions_without_members() -> None:
    assert assign({"a": set(), "b": {T}}, {T: 2, U: 2}) == {"a": {}, "b": {T: frozenset({0, 1})}}
    assert assign({}, {T: 2}) == {}


def test_a_member_that_comes_takes_no_more_than_its_share() -> None:
    before = assign({"a": {T}, "b": {T}}, {T: 6})
    after = assign({"a": {T}, "b": {T}, "c": {T}}, {T: 6}, before)
    assert sorted(shares(after)) == [2, 2, 2]
    for name in ("a", "b"):
        assert after[name][T] <= before[name][T]


def test_a_partition_gets_its_second_reader_though_the_first_member_has_it_already() -> None:
    old = {"a": 3, "b": 2, "c": 2, "d": 1, "e": 1, "f": 0, "g": 0}
    targets = assign({name: {T} for name in old}, {T: 4}, {name: {T: frozenset({n})} for name, n in old.items()})
    assert set(holders(targets).values()) == {2}
    assert all(number in targets[name][T] for name, number in old.items())


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 4), st.integers(0, 3))
def test_shares_are_even_and_unchanged_input_moves_nothing(members: int, partitions: int, gone: int, more: int) -> None:
    names = [f"m{number:02}" for number in range(members)]
    first = assign({name: {T} for name in names}, {T: partitions})
    left = names[gone:] or names[:1]
    targets = assign({name: {T} for name in left}, {T: partitions + more}, first)
    for result, count, total in ((first, members, partitions), (targets, len(left), partitions + more)):
        sharing = -(-count // total)
        assert max(shares(result)) - min(shares(result)) <= 1
        assert min(shares(result)) >= 1
        assert set(holders(result)) == {(T, number) for number in range(total)}, "each one is read"
        assert set(holders(result).values()) == {sharing}, "each one has equally many readers"
    assert assign({name: {T} for name in left}, {T: partitions + more}, targets) == targets


@given(st.lists(st.sets(st.sampled_from([T, U])), min_size=1, max_size=8), st.integers(1, 5), st.integers(1, 5))
def test_with_different_topics_each_topic_is_shared_by_itself(reads: list[set[bytes]], t: int, u: int) -> None:
    members = {f"m{number}": topics for number, topics in enumerate(reads)}
    targets = assign(members, {T: t, U: u})
    for topic, count in ((T, t), (U, u)):
        readers = [name for name, topics in members.items() if topic in topics]
        found = {number for name in readers for number in targets[name].get(topic, ())}
        assert found == (set(range(count)) if readers else set())
    for name, target in targets.items():
        assert set(target) <= members[name]
    assert assign(members, {T: t, U: u}, targets) == targets
