"""Round-robin assignment is balanced and distinct for all sizes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from oncelog_broker.controller.assignment import assign_replicas, check_assignment

BROKERS = st.lists(st.integers(0, 1000), min_size=1, max_size=12, unique=True).map(sorted)


@given(brokers=BROKERS, partitions=st.integers(1, 60), data=st.data())
def test_replicas_are_distinct_and_balanced(brokers, partitions, data):
    factor = data.draw(st.integers(1, len(brokers)))
    start, shift = (data.draw(st.integers(0, len(brokers) - 1)) for _ in range(2))
    first = data.draw(st.integers(0, 30))
    assigned = assign_replicas(brokers, partitions, factor, start, shift, first)
    assert check_assignment(assigned, brokers, first, factor) == assigned
    leaders = Counter(replicas[0] for replicas in assigned.values())
    assert max(leaders.values()) - min(leaders[broker] for broker in brokers) <= 1
    if partitions % len(brokers) == 0 and first % len(brokers) == 0:
        held = Counter(broker for replicas in assigned.values() for broker in replicas)
        assert set(held.values()) == {partitions * factor // len(brokers)}


@given(brokers=BROKERS.filter(lambda ids: len(ids) >= 3))
def test_the_followers_of_one_brokers_partitions_are_spread(brokers):
    size = len(brokers)
    assigned = assign_replicas(brokers, size * (size - 1), 2)
    for broker in brokers:
        followers = [replicas[1] for replicas in assigned.values() if replicas[0] == broker]
        assert sorted(followers) == [other for other in brokers if other != broker]
