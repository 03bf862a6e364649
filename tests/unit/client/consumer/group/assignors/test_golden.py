"""Assignments that Kafka's own assignors make, derived from Kafka's tests and documentation."""

from __future__ import annotations

import pytest

from oncelog.cluster import TopicPartition
from oncelog.consumer.group.assignors import ASSIGNORS, assignors_for
from oncelog.consumer.group.subscription import Member, Subscription

NO_RACK = frozenset[str]()


def member(name: str, *topics: str, instance: str | None = None, rack: str | None = None) -> Member:
    return Member(name, Subscription(topics, rack=rack), instance)


def topics(**partitions: int) -> dict[str, list[frozenset[str]]]:
    return {name: [NO_RACK] * count for name, count in partitions.items()}


def assigned(strategy: str, there: dict[str, list[frozenset[str]]], *members: Member) -> dict[str, list[str]]:
    outcome = ASSIGNORS[strategy].assign(there, members)
    return {name: [str(partition) for partition in partitions] for name, partitions in outcome.items()}


GOLDEN = [
    # columns: strategy, partitions of topics, subscriptions, outcome
    ("range", {"a": 3, "b": 3}, {"c0": "ab", "c1": "ab"}, {"c0": "a0 a1 b0 b1", "c1": "a2 b2"}),
    ("range", {"a": 2, "b": 5}, {"c0": "ab", "c1": "ab", "c2": "b"}, {"c0": "a0 b0 b1", "c1": "a1 b2 b3", "c2": "b4"}),
    ("range", {"a": 1}, {"c0": "a", "c1": "a"}, {"c0": "a0", "c1": ""}),
    ("range", {"a": 3}, {"c0": "ax", "c1": "x"}, {"c0": "a0 a1 a2", "c1": ""}),
    ("range", {}, {"c0": "a"}, {"c0": ""}),
    ("roundrobin", {"a": 3, "b": 3}, {"c0": "ab", "c1": "ab"}, {"c0": "a0 a2 b1", "c1": "a1 b0 b2"}),
    (
        "roundrobin",
        {"a": 1, "b": 2, "c": 3},
        {"c0": "a", "c1": "ab", "c2": "abc"},
        {"c0": "a0", "c1": "b0", "c2": "b1 c0 c1 c2"},
    ),
    ("roundrobin", {"a": 2}, {"c0": "a", "c1": "x", "c2": "a"}, {"c0": "a0", "c1": "", "c2": "a1"}),
    ("sticky", {"a": 3, "b": 3}, {"c0": "ab", "c1": "ab"}, {"c0": "a0 a2 b1", "c1": "a1 b0 b2"}),
    (
        "sticky",
        {"a": 1, "b": 2, "c": 3},
        {"c0": "a", "c1": "ab", "c2": "abc"},
        {"c0": "a0", "c1": "b0 b1", "c2": "c0 c1 c2"},
    ),
    ("cooperative-sticky", {"a": 2}, {"c0": "a", "c1": "a"}, {"c0": "a0", "c1": "a1"}),
]


@pytest.mark.parametrize(("strategy", "partitions", "subscriptions", "outcome"), GOLDEN)
def test_the_assignment_equals_the_golden_one(
    strategy: str, partitions: dict[str, int], subscriptions: dict[str, str], outcome: dict[str, str]
) -> None:
    members = [member(name, *wanted) for name, wanted in subscriptions.items()]
    expected = {name: [f"{place[0]}-{place[1:]}" for place in places.split()] for name, places in outcome.items()}
    assert assigned(strategy, topics(**partitions), *reversed(members)) == expected


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_static_members_come_first_and_keep_their_place_by_instance_id(strategy: str) -> None:
    outcome = assigned(
        strategy,
        topics(a=3),
        member("0-dynamic", "a"),
        member("z-random", "a", instance="i1"),
        member("y-random", "a", instance="i2"),
    )
    assert outcome == {"z-random": ["a-0"], "y-random": ["a-1"], "0-dynamic": ["a-2"]}


def racks(*names: str) -> list[frozenset[str]]:
    return [frozenset(name) for name in names]


def test_range_prefers_the_rack_of_the_member() -> None:
    there = {"a": racks("y", "x", "x")}
    outcome = assigned("range", there, member("c0", "a", rack="x"), member("c1", "a", rack="y"))
    assert outcome == {"c0": ["a-1", "a-2"], "c1": ["a-0"]}


def test_range_ignores_racks_where_every_partition_is_in_each() -> None:
    there = {"a": racks("xy", "xy", "xy")}
    outcome = assigned("range", there, member("c0", "a", rack="y"), member("c1", "a", rack="x"))
    assert outcome == {"c0": ["a-0", "a-1"], "c1": ["a-2"]}


def test_range_keeps_equal_topics_together_across_racks() -> None:
    there = {"a": racks("x", "y"), "b": racks("x", "y")}
    outcome = assigned("range", there, member("c0", "a", "b", rack="y"), member("c1", "a", "b", rack="x"))
    assert outcome == {"c0": ["a-1", "b-1"], "c1": ["a-0", "b-0"]}


def test_range_is_even_where_racks_would_not_be() -> None:
    there = {"a": racks("x", "x", "x", "x")}
    outcome = assigned("range", there, member("c0", "a", rack="x"), member("c1", "a", rack="y"))
    assert {name: len(partitions) for name, partitions in outcome.items()} == {"c0": 2, "c1": 2}


def owning(name: str, *owned: str, generation: int = 1) -> Member:
    partitions = tuple(TopicPartition(place[0], int(place[1:])) for place in owned)
    return Member(name, Subscription(("a",), owned=partitions, generation_id=generation))


def test_a_partition_moves_in_two_generations() -> None:
    first = assigned("cooperative-sticky", topics(a=2), owning("c0", "a0", "a1"), member("c1", "a"))
    assert first == {"c0": ["a-0"], "c1": []}
    second = assigned("cooperative-sticky", topics(a=2), owning("c0", "a0", generation=2), member("c1", "a"))
    assert second == {"c0": ["a-0"], "c1": ["a-1"]}


def test_the_later_generation_owns_and_the_earlier_still_has_to_let_go() -> None:
    first = assigned(
        "cooperative-sticky", topics(a=1), owning("c0", "a0", generation=4), owning("c1", "a0", generation=5)
    )
    assert first == {"c0": [], "c1": []}
    second = assigned("cooperative-sticky", topics(a=1), owning("c0", generation=6), owning("c1", generation=6))
    assert second == {"c0": ["a-0"], "c1": []}


def test_ownership_before_subscription_v2_is_dated_by_user_data() -> None:
    cooperative = ASSIGNORS["cooperative-sticky"]

    def dated(name: str, generation: int) -> Member:
        owned = (TopicPartition("a", 0),)
        return Member(name, Subscription(("a",), owned=owned, user_data=cooperative.user_data(owned, generation)))

    # The partition that both members claim is assigned to neither member now. The member that gets the other partition
    # is the one that does not own the disputed partition.
    outcome = assigned("cooperative-sticky", topics(a=2), dated("c0", 3), dated("c1", 7))
    assert outcome == {"c0": ["a-1"], "c1": []}


def test_sticky_remembers_by_user_data_in_both_versions() -> None:
    sticky = ASSIGNORS["sticky"]
    owned = [TopicPartition("a", 1)]
    data = sticky.user_data(owned, 3)
    assert data is not None
    assert data == b"\0\0\0\1" + b"\0\1a" + b"\0\0\0\1" + b"\0\0\0\1" + b"\0\0\0\3"
    for told in (data, data[:-4]):
        kept = Member("c0", Subscription(("a",), user_data=told))
        assert assigned("sticky", topics(a=2), kept, member("c1", "a")) == {"c0": ["a-1"], "c1": ["a-0"]}
    assert sticky.user_data([], 3) is None


def test_user_data_that_cannot_be_read_is_nothing_owned() -> None:
    broken = Member("c0", Subscription(("a",), user_data=b"\xff\xff\xff"))
    assert assigned("sticky", topics(a=2), broken, member("c1", "a")) == {"c0": ["a-0"], "c1": ["a-1"]}


def test_assignors_come_by_name() -> None:
    mine = ASSIGNORS["range"]
    assert [assignor.name for assignor in assignors_for(["sticky", mine])] == ["sticky", "range"]
    with pytest.raises(KeyError):
        assignors_for(["fair"])
