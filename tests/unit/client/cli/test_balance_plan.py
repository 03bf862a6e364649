"""The plans of `oncelog brokers` empty brokers or balance their load, keep replicas in different racks, move little
data, and spread leaders.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from oncelog.cli.balance_plan import PARTITION_BYTES, TOLERANCE, balanced, emptied, loads
from oncelog.cluster import TopicPartition

MB = 1_000_000


@st.composite
def clusters(draw):
    """Generate live brokers with or without racks, and partitions of any size (in MB) on live and dead brokers."""
    ids = draw(st.lists(st.integers(1, 9), unique=True, min_size=2, max_size=7))
    racks = draw(st.none() | st.integers(1, 4))
    brokers = {node: None if racks is None else f"r{draw(st.integers(1, racks))}" for node in ids}
    factor = draw(st.integers(1, len(ids) - 1))
    partitions = [TopicPartition("t", index) for index in range(draw(st.integers(1, 25)))]
    dead = draw(st.sampled_from([(), (10,)]))
    holders = st.lists(st.sampled_from([*ids, *dead]), unique=True, min_size=factor, max_size=factor)
    current = {partition: tuple(draw(holders)) for partition in partitions}
    sizes = {partition: draw(st.sampled_from([0, 1, 5, 40])) * MB for partition in partitions}
    return current, brokers, sizes


def racks_of(replicas, brokers):
    """Return the distinct racks of these replicas; unless all brokers have a rack, each broker counts as a rack."""
    known = None not in brokers.values()
    return {brokers.get(node) if known else node for node in replicas if node in brokers}


def check_legal(current, plan, brokers):
    assert plan.keys() == current.keys()
    for partition, replicas in plan.items():
        assert len(set(replicas)) == len(replicas) == len(current[partition])
        assert set(replicas) <= brokers.keys()
        had = len(racks_of(current[partition], brokers))
        assert len(racks_of(replicas, brokers)) >= min(had, len(racks_of(brokers, brokers)))


@examples(80)
@given(clusters(), st.data())
def test_an_emptied_broker_holds_nothing_and_nothing_else_moves(found, data):
    current, brokers, sizes = found
    live = {node for node in brokers if any(node in replicas for replicas in current.values())} or set(brokers)
    leaving = {data.draw(st.sampled_from(sorted(live))), 10}
    staying = {node: rack for node, rack in brokers.items() if node not in leaving}
    if max(map(len, current.values())) > len(staying):
        return
    plan = emptied(current, brokers, sizes, leaving)
    check_legal(current, plan, staying)
    for partition, replicas in plan.items():
        stayed = set(current[partition]) - leaving
        assert stayed <= set(replicas)
        if stayed == set(current[partition]):
            assert replicas == current[partition], "not even its preferred leader changes"


@examples(80)
@given(clusters())
def test_a_balanced_cluster_is_even_and_stays_as_it_is(found):
    current, brokers, sizes = found
    plan = balanced(current, brokers, sizes)
    check_legal(current, plan, brokers)
    assert balanced(plan, brokers, sizes) == plan
    leads = Counter(dict.fromkeys(brokers, 0))
    leads.update(replicas[0] for replicas in plan.values())
    for replicas in plan.values():
        assert all(leads[replicas[0]] - leads[node] < 2 for node in replicas), "no single change spreads leaders better"


@examples(80)
@given(clusters())
def test_no_single_move_would_even_the_load_out_further(found):
    current, brokers, sizes = found
    plan = balanced(current, brokers, sizes)
    weight = {partition: sizes[partition] + PARTITION_BYTES for partition in plan}
    load = Counter(dict.fromkeys(brokers, 0))
    for partition, replicas in plan.items():
        load.update(dict.fromkeys(replicas, weight[partition]))
    least = max(PARTITION_BYTES, TOLERANCE * sum(load.values()) / len(brokers))
    for partition, replicas in plan.items():
        for source in replicas:
            for target in brokers.keys() - set(replicas):
                moved = tuple(target if node == source else node for node in replicas)
                gap = load[source] - load[target]
                narrows = gap > least and weight[partition] <= gap - least / 2
                assert not narrows or len(racks_of(moved, brokers)) < len(racks_of(replicas, brokers))


@examples(50)
@given(clusters())
def test_a_partition_lies_in_as_many_racks_as_there_can_be(found):
    current, brokers, sizes = found
    for replicas in balanced(current, brokers, sizes).values():
        assert len(racks_of(replicas, brokers)) == min(len(replicas), len(racks_of(brokers, brokers)))


@examples(50)
@given(st.integers(1, 4), st.integers(1, 40))
def test_equal_partitions_are_spread_evenly_and_only_the_surplus_moves(factor, count):
    brokers = dict.fromkeys(range(1, 6))
    current = {TopicPartition("t", index): tuple(range(1, factor + 1)) for index in range(count)}
    plan = balanced(current, brokers, {})
    held = [load.replicas for load in loads(plan, {}, brokers).values()]
    share = TOLERANCE * count * factor / 5
    assert max(held) - min(held) <= max(1, share)
    moved = sum(len(set(plan[partition]) - set(current[partition])) for partition in plan)
    surplus = sum(max(0, count - count * factor / 5) for _ in range(factor))
    assert moved <= surplus + 5, "each broker gives away no more than it has too much"


def test_a_chain_of_changes_spreads_leaders_where_one_change_cannot():
    """Broker 1 leads three partitions, and shares no partition with broker 3, which leads none."""
    current = {
        TopicPartition("t", 0): (1, 2),
        TopicPartition("t", 1): (1, 2),
        TopicPartition("t", 2): (2, 3),
        TopicPartition("t", 3): (2, 3),
        TopicPartition("t", 4): (1, 2),
    }
    plan = balanced(current, {1: None, 2: None, 3: None}, {})
    leads = Counter(replicas[0] for replicas in plan.values())
    assert max(leads.values()) - min(leads.values()) <= 1


def test_large_replicas_count_by_their_bytes():
    """One broker has a large partition and the other many small ones of about the same total size: nothing moves."""
    large, small = TopicPartition("large", 0), [TopicPartition("small", index) for index in range(10)]
    current = {large: (1,), **dict.fromkeys(small, (2,))}
    sizes = {large: 100 * MB, **dict.fromkeys(small, 9 * MB)}
    plan = balanced(current, {1: None, 2: None}, sizes)
    assert {partition: set(replicas) for partition, replicas in plan.items()} == {
        partition: set(replicas) for partition, replicas in current.items()
    }


def test_too_few_brokers_are_refused_with_the_partition():
    current = {TopicPartition("t", 0): (1, 2)}
    with pytest.raises(ValueError, match="t-0 has 2 replicas, and only 1 brokers are left"):
        emptied(current, {1: None, 2: None}, {}, {2})


def test_a_thousand_partitions_reach_every_broker():
    brokers = {node: f"r{node % 3}" for node in range(12)}
    current = {TopicPartition("t", index): (index % 6, index % 6 + 1, 8) for index in range(1000)}
    plan = balanced(current, brokers, {partition: partition.partition * 1000 for partition in current})
    held = [load.replicas for load in loads(plan, {}, brokers).values()]
    assert min(held) > 0
