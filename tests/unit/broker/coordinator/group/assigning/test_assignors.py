"""The assignors distribute partitions evenly, and move no partition without need."""

from __future__ import annotations

import pytest

from oncelog_broker.coordinator.group.assigning.assignors import ASSIGNORS
from oncelog_broker.coordinator.group.assigning.spec import GroupSpec, Subscriber, Targets
from oncelog_broker.coordinator.group.assignments import Target
from oncelog_broker.runtime.steps import run_steps

T, U = b"t" * 16, b"u" * 16


def spec(
    partitions: dict[bytes, int],
    *members: tuple[str, set[bytes], dict[bytes, set[int]]] | tuple[str, set[bytes], dict[bytes, set[int]], str],
    is_homogeneous: bool = True,
) -> GroupSpec:
    subscribers = [
        Subscriber(
            member[0],
            member[3] if len(member) == 4 else None,
            frozenset(member[1]),
            {topic: frozenset(has) for topic, has in member[2].items()},
        )
        for member in members
    ]
    return GroupSpec(subscribers, partitions, is_homogeneous)


def assign(name: str, given: GroupSpec) -> Targets:
    return run_steps(ASSIGNORS[name](given))


def test_range_divides_each_topic_alike() -> None:
    targets = assign("range", spec({T: 5, U: 5}, ("a", {T, U}, {}), ("b", {T, U}, {})))
    assert targets == {
        "a": {T: frozenset({0, 1, 2}), U: frozenset({0, 1, 2})},
        "b": {T: frozenset({3, 4}), U: frozenset({3, 4})},
    }


def test_range_takes_static_members_first_and_does_not_look_at_what_they_had() -> None:
    targets = assign("range", spec({T: 3}, ("a", {T}, {T: {0, 1}}), ("b", {T}, {}, "z"), ("c", {T}, {}, "y")))
    assert [targets[member][T] for member in "cba"] == [{0}, {1}, {2}]


def test_range_gives_topics_to_their_readers_alone() -> None:
    targets = assign("range", spec({T: 2, U: 3}, ("a", {T}, {}), ("b", {T, U}, {}), is_homogeneous=False))
    assert targets == {"a": {T: frozenset({0})}, "b": {T: frozenset({1}), U: frozenset({0, 1, 2})}}


def test_more_members_than_partitions_leave_some_without() -> None:
    for name in ASSIGNORS:
        targets = assign(name, spec({T: 1}, ("a", {T}, {}), ("b", {T}, {}), ("c", {T}, {})))
        assert sorted(sum(map(len, target.values())) for target in targets.values()) == [0, 0, 1], name


@pytest.mark.parametrize("name", ASSIGNORS)
def test_groups_without_members_or_topics_are_assigned_nothing(name: str) -> None:
    assert assign(name, spec({})) == {}
    assert assign(name, spec({}, ("a", set(), {T: {1}}))) == {"a": {}}


def test_uniform_moves_as_little_as_possible_for_a_new_member() -> None:
    targets = assign("uniform", spec({T: 6}, ("a", {T}, {T: {0, 1, 2}}), ("b", {T}, {T: {3, 4, 5}}), ("c", {T}, {})))
    assert targets["a"][T] < {0, 1, 2}
    assert targets["b"][T] < {3, 4, 5}
    assert [len(targets[member][T]) for member in "abc"] == [2, 2, 2]


def test_a_balanced_assignment_does_not_move() -> None:
    """The assignment stays unchanged although the members that have one partition more than others are not the first
    members (KAFKA-18688).
    """
    had: dict[str, Target] = {"a": {T: frozenset({0})}, "b": {T: frozenset({1, 2})}, "c": {T: frozenset({3, 4})}}
    members = [(member, {T}, {T: set(target[T])}) for member, target in had.items()]
    assert assign("uniform", spec({T: 5}, *members)) == had


def test_partitions_of_a_departed_member_are_given_to_others() -> None:
    targets = assign("uniform", spec({T: 4}, ("a", {T}, {T: {0, 1}}), ("c", {T}, {})))
    assert targets == {"a": {T: frozenset({0, 1})}, "c": {T: frozenset({2, 3})}}


def test_unsubscribed_and_missing_partitions_are_revoked() -> None:
    targets = assign("uniform", spec({T: 2}, ("a", {T}, {T: {0, 7}, U: {0}})))
    assert targets == {"a": {T: frozenset({0, 1})}}


@pytest.mark.parametrize("is_homogeneous", [True, False])
def test_a_partition_claimed_by_two_members_goes_to_one(is_homogeneous: bool) -> None:
    """A broker that died has logged only a part of an assignment."""
    given = spec({T: 4}, ("a", {T}, {T: {0, 1}}), ("b", {T}, {T: {1, 2}}), is_homogeneous=is_homogeneous)
    targets = assign("uniform", given)
    assert sorted([*targets["a"][T], *targets["b"][T]]) == [0, 1, 2, 3]


def test_a_member_of_more_topics_gets_fewer_partitions_of_shared_topics() -> None:
    given = spec({T: 4, U: 4}, ("a", {T}, {}), ("b", {T, U}, {}), is_homogeneous=False)
    targets = assign("uniform", given)
    assert targets == {"a": {T: frozenset(range(4))}, "b": {U: frozenset(range(4))}}


def test_unbalanced_partitions_move_among_different_subscriptions() -> None:
    given = spec(
        {T: 6, U: 2},
        ("a", {T}, {T: {0, 1, 2, 3, 4, 5}}),
        ("b", {T, U}, {U: {0, 1}}),
        is_homogeneous=False,
    )
    targets = assign("uniform", given)
    assert targets == {"a": {T: frozenset({0, 1, 2, 3})}, "b": {T: frozenset({4, 5}), U: frozenset({0, 1})}}
