import pytest

from oncelog_broker.controller.assignment import MAX_PARTITIONS_PER_TOPIC, assign_replicas, check_assignment
from oncelog_protocol.errors import ErrorCode, KafkaError


def test_the_example_of_kafkas_documentation():
    assigned = assign_replicas([0, 1, 2, 3, 4], 10, 3, start=0, shift=0)
    assert [assigned[p][0] for p in range(10)] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert [assigned[p][1] for p in range(10)] == [1, 2, 3, 4, 0, 2, 3, 4, 0, 1]
    assert [assigned[p][2] for p in range(10)] == [2, 3, 4, 0, 1, 3, 4, 0, 1, 2]


def test_added_partitions_continue_where_the_present_ones_end():
    whole = assign_replicas([4, 5, 6], 9, 2)
    for present in range(1, 3):
        added = assign_replicas([4, 5, 6], 9 - present, 2, first_partition=present)
        assert added == {p: whole[p] for p in range(present, 9)}


def test_a_single_broker_holds_every_partition():
    assert assign_replicas([7], 3, 1) == {0: (7,), 1: (7,), 2: (7,)}


@pytest.mark.parametrize(
    ("brokers", "partitions", "factor", "code"),
    [
        ([1], 0, 1, ErrorCode.INVALID_PARTITIONS),
        ([1], -1, 1, ErrorCode.INVALID_PARTITIONS),
        ([1], MAX_PARTITIONS_PER_TOPIC + 1, 1, ErrorCode.INVALID_PARTITIONS),
        ([1], 2**31 - 1, 1, ErrorCode.INVALID_PARTITIONS),
        ([1], 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([1], 1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([], 1, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_numbers_are_refused(brokers, partitions, factor, code):
    with pytest.raises(KafkaError) as raised:
        assign_replicas(brokers, partitions, factor)
    assert raised.value.code is code


def test_a_good_assignment_by_hand_comes_back_in_order():
    assert check_assignment({1: [2, 1], 0: [1, 2]}, {1, 2, 3}) == {0: (1, 2), 1: (2, 1)}
    assert check_assignment({5: [1]}, {1}, first_partition=5, replication_factor=1) == {5: (1,)}


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        ({1: [1]}, "consecutive from 0"),
        ({0: [1], 2: [1]}, "consecutive from 0"),
        ({-1: [1], 0: [1]}, "consecutive from 0"),
        ({0: []}, "no replicas"),
        ({0: [1, 1]}, "a broker twice"),
        ({0: [1, 9]}, r"on \[1, 9\]: only \[1, 2, 3\] are alive"),
        ({0: [1, 2], 1: [1]}, "1 replicas, but the other partitions have 2"),
    ],
)
def test_a_bad_assignment_by_hand_is_refused(assignment, reason):
    with pytest.raises(KafkaError, match=reason) as raised:
        check_assignment(assignment, {1, 2, 3})
    assert raised.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_an_empty_assignment_by_hand_has_no_partitions():
    with pytest.raises(KafkaError) as raised:
        check_assignment({}, {1})
    assert raised.value.code is ErrorCode.INVALID_PARTITIONS


RACKS = {0: "a", 1: "b", 2: "c", 3: "a", 4: "b", 5: "c"}


@pytest.mark.parametrize("start", range(6))
@pytest.mark.parametrize("shift", range(3))
def test_replicas_lie_in_as_many_racks_as_can_be(start, shift):
    assigned = assign_replicas(list(RACKS), 12, 3, start, shift, racks=RACKS)
    assert all({RACKS[broker] for broker in replicas} == {"a", "b", "c"} for replicas in assigned.values())
    assert all(sum(replicas[0] == broker for replicas in assigned.values()) == 2 for broker in RACKS)
    assert all(sum(broker in replicas for replicas in assigned.values()) == 6 for broker in RACKS)


def test_more_replicas_than_racks_use_every_rack_and_no_broker_twice():
    racks = {1: "a", 2: "a", 3: "a", 4: "b"}
    for replicas in assign_replicas([1, 2, 3, 4], 8, 3, racks=racks).values():
        assert len(set(replicas)) == 3
        assert {racks[broker] for broker in replicas} == {"a", "b"}


def test_leaders_go_round_the_racks():
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    leaders = [replicas[0] for replicas in assign_replicas([1, 2, 3, 4], 4, 1, racks=racks).values()]
    assert [racks[leader] for leader in leaders] == ["a", "b", "a", "b"]


def test_racks_are_ignored_if_any_broker_has_none():
    assert assign_replicas([1, 2, 3], 6, 2, racks={1: "a", 2: "a"}) == assign_replicas([1, 2, 3], 6, 2)
