"""The plans of `oncelog reassign` are valid, balanced, spread across racks, and move little data; their JSON format is
that of other tools.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from oncelog.cli.reassignment_plan import from_json, spread, to_json, topics_from_json
from oncelog.cluster import TopicPartition


@st.composite
def clusters(draw):
    """Generate brokers with or without racks, and partitions anywhere, even on brokers that must not have them."""
    ids = draw(st.lists(st.integers(1, 12), unique=True, min_size=1, max_size=8))
    racks = draw(st.none() | st.integers(1, 4))
    brokers = {node: None if racks is None else f"r{draw(st.integers(1, racks))}" for node in ids}
    factor = draw(st.integers(1, len(ids)))
    holders = st.lists(st.integers(1, 12), unique=True, min_size=factor, max_size=factor)
    current = {TopicPartition("t", index): tuple(draw(holders)) for index in range(draw(st.integers(1, 20)))}
    return current, brokers


@examples(200)
@given(clusters())
def test_a_plan_is_legal_and_lies_in_as_many_racks_as_can_be(found):
    current, brokers = found
    plan = spread(current, brokers)
    assert plan.keys() == current.keys()
    racks = len(set(brokers.values()))
    for partition, replicas in plan.items():
        assert len(set(replicas)) == len(replicas) == len(current[partition])
        assert set(replicas) <= brokers.keys()
        if None not in brokers.values():
            assert len({brokers[node] for node in replicas}) == min(racks, len(replicas))


@examples(200)
@given(clusters())
def test_a_plan_without_racks_is_even_and_stable(found):
    current, brokers = found
    brokers = dict.fromkeys(brokers)
    plan = spread(current, brokers)
    held = Counter(dict.fromkeys(brokers, 0))
    for replicas in plan.values():
        held.update(replicas)
    assert max(held.values()) - min(held.values()) <= 1
    again = spread(plan, brokers)
    assert {p: set(replicas) for p, replicas in again.items()} == {p: set(replicas) for p, replicas in plan.items()}


def test_only_necessary_replicas_move():
    current = {TopicPartition("t", index): (1 + index % 3, 1 + (index + 1) % 3) for index in range(6)}
    assert spread(current, dict.fromkeys((1, 2, 3))) == current
    plan = spread(current, dict.fromkeys((1, 2, 4)))
    for partition, replicas in current.items():
        assert set(replicas) - {3} <= set(plan[partition])
    leaders = Counter(replicas[0] for replicas in plan.values())
    assert leaders == {1: 2, 2: 2, 4: 2}


def test_the_replication_factor_can_be_changed():
    current = {TopicPartition("t", 0): (1, 2)}
    assert spread(current, dict.fromkeys((1, 2, 3)), 3) == {TopicPartition("t", 0): (1, 2, 3)}
    assert spread(current, dict.fromkeys((1, 2, 3)), 1) == {TopicPartition("t", 0): (1,)}
    with pytest.raises(ValueError, match="4 replicas"):
        spread(current, dict.fromkeys((1, 2, 3)), 4)


@given(clusters())
def test_a_plan_is_written_and_read_back(found):
    current, _ = found
    assert from_json(to_json(current)) == current


def test_a_plan_of_kafkas_tool_is_read():
    text = (
        '{"version":1,"partitions":[{"topic":"a","partition":1,"replicas":[3,2],"log_dirs":["any","any"]},'
        '{"topic":"a","partition":0,"replicas":[1,2]}]}'
    )
    assert from_json(text) == {TopicPartition("a", 0): (1, 2), TopicPartition("a", 1): (3, 2)}
    assert topics_from_json('{"topics":[{"topic":"a"},{"topic":"b"}],"version":1}') == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[]", "not a plan"),
        ('{"version":2,"partitions":[]}', "version 2"),
        ('{"version":1,"partitions":[]}', "no partitions"),
        ('{"partitions":[7]}', "no partition: 7"),
        ('{"partitions":[{"topic":"a","partition":0,"replicas":[]}]}', "replicas"),
        ('{"partitions":[{"topic":"a","partition":0,"replicas":[1,1]}]}', "each once"),
        ('{"partitions":[{"topic":"a","partition":true,"replicas":[1]}]}', "partition"),
        ('{"partitions":[{"topic":"a","partition":0,"replicas":[1],"log_dirs":["/d"]}]}', "directories"),
        ('{"partitions":[{"topic":"a","partition":0,"replicas":[1]},{"topic":"a","partition":0,"replicas":[2]}]}',
         "twice"),
    ],
)  # fmt: skip
def test_a_malformed_plan_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        from_json(text)


@pytest.mark.parametrize("text", ["{", "[]", '{"topics":["a"]}'])
def test_a_malformed_list_of_topics_is_refused(text):
    with pytest.raises(ValueError, match="not a list of topics"):
        topics_from_json(text)
