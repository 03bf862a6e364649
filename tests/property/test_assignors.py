"""Whatever members and topics a group has, each assignment is complete, disjoint and balanced, and differs little from
the previous assignment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from types import SimpleNamespace

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from hypothesis import given
from hypothesis import strategies as st

from oncelog.cluster import TopicPartition
from oncelog.consumer.group.assignors import ASSIGNORS
from oncelog.consumer.group.assignors.balance import Claim, balanced
from oncelog.consumer.group.subscription import Member, Subscription

TOPICS = ("a", "b", "c")
NO_RACK = frozenset[str]()

Counts = dict[str, int]
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 5))
subscriptions = st.lists(st.sets(st.sampled_from(TOPICS)), min_size=1, max_size=5)


def topics_of(partitions: Counts) -> dict[str, list[frozenset[str]]]:
    return {topic: [NO_RACK] * count for topic, count in partitions.items()}


def members_of(wanted: list[set[str]]) -> list[Member]:
    return [Member(f"m{index}", Subscription(tuple(sorted(topics)))) for index, topics in enumerate(wanted)]


def readable(partitions: Counts, wanted: list[set[str]]) -> list[TopicPartition]:
    read = set().union(*wanted)
    return [
        TopicPartition(topic, i) for topic, count in sorted(partitions.items()) if topic in read for i in range(count)
    ]


@pytest.mark.parametrize("name", ASSIGNORS)
@given(partitions=counts, wanted=subscriptions)
def test_each_partition_goes_to_one_subscriber(name: str, partitions: Counts, wanted: list[set[str]]) -> None:
    members = members_of(wanted)
    outcome = ASSIGNORS[name].assign(topics_of(partitions), members)
    assert everything(outcome) == readable(partitions, wanted)
    assert set(outcome) == {member.member_id for member in members}
    for member in members:
        assert {partition.topic for partition in outcome[member.member_id]} <= set(member.subscription.topics)


@given(partitions=counts, wanted=subscriptions, racks=st.data())
def test_range_with_racks_is_complete_and_as_even_as_without(
    partitions: Counts, wanted: list[set[str]], racks: st.DataObject
) -> None:
    sets = st.frozensets(st.sampled_from("xyz"), max_size=2)
    there = {topic: [racks.draw(sets) for _ in range(count)] for topic, count in partitions.items()}
    members = [
        member._replace(subscription=Subscription(member.subscription.topics, rack=racks.draw(st.sampled_from("xyz"))))
        for member in members_of(wanted)
    ]
    near, plain = (ASSIGNORS["range"].assign(topics, members) for topics in (there, topics_of(partitions)))
    assert everything(near) == readable(partitions, wanted)
    for topic in partitions:
        sizes = [
            sorted(sum(partition.topic == topic for partition in assigned) for assigned in outcome.values())
            for outcome in (near, plain)
        ]
        assert sizes[0] == sizes[1]


def everything(assignment: Mapping[str, Sequence[TopicPartition]]) -> list[TopicPartition]:
    return sorted(partition for assigned in assignment.values() for partition in assigned)


class ForeignCluster:
    def __init__(self, partitions: Counts) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._partitions[topic])) or None if topic in self._partitions else None


@pytest.mark.parametrize(
    ("name", "foreign"), [("range", RangePartitionAssignor), ("roundrobin", RoundRobinPartitionAssignor)]
)
@given(partitions=counts, wanted=st.lists(st.sets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=5))
def test_another_implementation_agrees(name: str, foreign: type, partitions: Counts, wanted: list[set[str]]) -> None:
    members = members_of(wanted)
    asked = {member.member_id: SimpleNamespace(subscription=member.subscription.topics) for member in members}
    theirs = foreign.assign(ForeignCluster(partitions), asked)  # type: ignore[attr-defined]
    assert ASSIGNORS[name].assign(topics_of(partitions), members) == {
        member_id: [TopicPartition(topic, index) for topic, indexes in told.assignment for index in indexes]
        for member_id, told in theirs.items()
    }


claims_of = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(TOPICS), st.integers(0, 5), st.integers(1, 2)))
Claims = list[tuple[int, str, int, int]]


def claims_from(claims: Claims) -> list[Claim]:
    return [Claim(f"m{member}", generation, [TopicPartition(topic, i)]) for member, topic, i, generation in claims]


def least_squares(partitions: Counts, wanted: list[set[str]]) -> int:
    """Try all assignments; return the smallest sum of the squared loads, which the most balanced assignment has."""
    choices = [
        [index for index, topics in enumerate(wanted) if partition.topic in topics]
        for partition in readable(partitions, wanted)
    ]
    best = None
    for choice in product(*choices):
        squares = sum(choice.count(index) ** 2 for index in range(len(wanted)))
        best = squares if best is None else min(best, squares)
    return best or 0


@given(
    partitions=st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 2)),
    wanted=st.lists(st.sets(st.sampled_from(TOPICS)), min_size=1, max_size=4),
    claims=claims_of,
)
def test_no_assignment_is_more_even(partitions: Counts, wanted: list[set[str]], claims: Claims) -> None:
    outcome = balanced(topics_of(partitions), members_of(wanted), claims_from(claims))
    assert everything(outcome) == readable(partitions, wanted)
    assert sum(len(assigned) ** 2 for assigned in outcome.values()) == least_squares(partitions, wanted)


@given(partitions=counts, before=st.integers(1, 5), after=st.integers(1, 5), leaves=st.sets(st.integers(0, 4)))
def test_no_move_is_unnecessary_with_equal_subscriptions(
    partitions: Counts, before: int, after: int, leaves: set[int]
) -> None:
    topics = topics_of(partitions)
    alike = Subscription(TOPICS)
    old = [Member(f"m{index}", alike) for index in range(before)]
    first = balanced(topics, old, [])
    new = [member for index, member in enumerate(old) if index not in leaves]
    new += [Member(f"n{index}", alike) for index in range(after)]
    claims = [Claim(member_id, 1, owned) for member_id, owned in first.items()]
    second = balanced(topics, new, claims)
    staying = {member.member_id: len(first.get(member.member_id, ())) for member in new}
    kept = sum(len(set(second[member_id]) & set(first.get(member_id, ()))) for member_id in second)
    # A balanced assignment moves the fewest partitions if the members that already own the most partitions get the
    # larger shares.
    shares = sorted((len(assigned) for assigned in second.values()), reverse=True)
    had = sorted(staying.values(), reverse=True)
    assert kept == sum(min(share, owned) for share, owned in zip(shares, had, strict=True))
    assert max(shares) - min(shares) <= 1


@given(partitions=counts, wanted=subscriptions, claims=claims_of)
def test_a_balanced_assignment_stays(partitions: Counts, wanted: list[set[str]], claims: Claims) -> None:
    topics, members = topics_of(partitions), members_of(wanted)
    first = balanced(topics, members, claims_from(claims))
    again = balanced(topics, members, [Claim(member_id, 3, owned) for member_id, owned in first.items()])
    assert again == first


@given(partitions=counts, steps=st.lists(subscriptions, min_size=1, max_size=4))
def test_cooperative_members_never_share_a_partition_and_settle(
    partitions: Counts, steps: list[list[set[str]]]
) -> None:
    assignor, topics = ASSIGNORS["cooperative-sticky"], topics_of(partitions)
    owned: dict[str, tuple[TopicPartition, ...]] = {}
    generation = 0
    for wanted in steps:
        for _ in range(3):
            generation += 1
            members = [
                Member(
                    member.member_id,
                    Subscription(
                        member.subscription.topics,
                        tuple(p for p in owned.get(member.member_id, ()) if p.topic in member.subscription.topics),
                        generation - 1,
                    ),
                )
                for member in members_of(wanted)
            ]
            outcome = assignor.assign(topics, members)
            for member in members:
                for partition in set(outcome[member.member_id]) - set(member.subscription.owned):
                    assert not any(partition in other.subscription.owned for other in members)
            is_settled = all(set(member.subscription.owned) <= set(outcome[member.member_id]) for member in members)
            owned = {member_id: tuple(assigned) for member_id, assigned in outcome.items()}
            if is_settled:
                break
        assert is_settled
        assert everything(owned) == readable(partitions, wanted)
