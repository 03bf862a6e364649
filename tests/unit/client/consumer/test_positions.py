import pytest

from oncelog.cluster import TopicPartition
from oncelog.consumer.fetched import FetchedPartition
from oncelog.consumer.positions import PartitionPosition, Positions
from oncelog.errors import CorruptRecords, ErrorCode, KafkaError
from oncelog.group_offsets import OffsetAndMetadata
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = 4
PLENTY = {"buffer_bytes": 1000, "total_bytes": 10_000}


def positions(*partitions: TopicPartition) -> Positions:
    assigned = Positions()
    assigned.assign(partitions or (A, B))
    return assigned


def fill(position: PartitionPosition, count: int) -> None:
    offset = position.fetch_offset
    assert offset is not None
    records = [Record(0, 0, None, b"v", [])] * count
    data = memoryview(build_batch(records, base_offset=offset, partition_leader_epoch=EPOCH))
    position.add(FetchedPartition(*position.topic_partition, offset, data, check_crcs=True))


def damage(position: PartitionPosition) -> None:
    """Add a batch that cannot be decoded."""
    fill(position, 1)
    position.fetched[-1]._data = memoryview(bytes(position.fetched[-1]._data[:-1]) + b"\xff")


def nobody(_: PartitionPosition) -> None:
    raise AssertionError("nothing is damaged")


def test_new_partitions_look_for_a_start() -> None:
    assigned = positions()
    assert [position.topic_partition for position in assigned.to_reset(0.0)] == [A, B]
    assert assigned.fetchable(0.0, **PLENTY) == []


def test_partitions_that_stay_keep_what_they_have() -> None:
    assigned = positions()
    a, b = assigned.get(A), assigned.get(B)
    a.seek(5)
    fill(a, 3)
    assigned.assign([A, TopicPartition("u", 0)])
    assert assigned.get(A) is a
    assert a.position == 5
    assert not assigned.owns(b)
    with pytest.raises(ValueError, match="t-1 is not assigned"):
        assigned.get(B)


def test_taking_moves_the_position_and_buffered_data_moves_the_fetch() -> None:
    position = positions().get(A)
    position.seek(5)
    fill(position, 3)
    fill(position, 3)
    assert (position.position, position.fetch_offset) == (5, 11)
    assert [record.offset for record in position.take(4)] == [5, 6, 7, 8]
    assert position.position == 9
    position.take(100)
    assert (position.position, position.fetch_offset) == (11, 11)


def test_a_seek_forgets_what_is_buffered_and_what_is_under_way() -> None:
    position = positions().get(A)
    position.seek(5)
    fill(position, 3)
    before = position.seeks
    position.seek(100)
    assert position.position == 100
    assert not position.fetched
    assert position.seeks > before


def test_the_partitions_worth_fetching_are_chosen() -> None:
    assigned = positions(A)
    position = assigned.get(A)
    position.seek(0)
    assert assigned.fetchable(0.0, **PLENTY) == [position]
    fill(position, 2)
    assert assigned.fetchable(0.0, **PLENTY) == [position]  # the buffer has room for more records
    assert assigned.fetchable(0.0, buffer_bytes=50, total_bytes=10_000) == []
    assert assigned.fetchable(0.0, buffer_bytes=1000, total_bytes=50) == []
    for name, value in (("is_paused", True), ("not_before", 1.0)):
        before = getattr(position, name)
        setattr(position, name, value)
        assert assigned.fetchable(0.5, **PLENTY) == [], name
        setattr(position, name, before)


def test_partitions_take_turns() -> None:
    assigned = positions()
    for position in assigned:
        position.seek(0)
        fill(position, 3)
    assert list(assigned.take(2, damaged=nobody)) == [A]
    assert list(assigned.take(2, damaged=nobody)) == [B]
    assert {partition: len(records) for partition, records in assigned.take(10, damaged=nobody).items()} == {A: 1, B: 1}
    assert assigned.take(10, damaged=nobody) == {}


def test_paused_partitions_keep_what_they_have() -> None:
    assigned = positions(A)
    position = assigned.get(A)
    position.seek(0)
    fill(position, 3)
    position.is_paused = True
    assert assigned.take(10, damaged=nobody) == {}
    position.is_paused = False
    assert len(assigned.take(10, damaged=nobody)[A]) == 3


def test_an_error_waits_until_what_came_before_it_is_taken() -> None:
    assigned = positions(A)
    position = assigned.get(A)
    position.seek(0)
    fill(position, 1)
    position.error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert list(assigned.take(10, damaged=nobody)) == [A]
    with pytest.raises(KafkaError):
        assigned.take(10, damaged=nobody)
    assert assigned.take(10, damaged=nobody) == {}  # raised once


@pytest.mark.parametrize("take", ["records", "columns", "iteration"])
def test_e53_errors_take_their_turn_like_records(take: str) -> None:
    """The errors of each partition are reported one by one, however many records of another partition are buffered."""
    assigned = positions()
    busy, wrong = (assigned.get(at) for at in (A, B))
    busy.seek(0)
    fill(busy, 100)
    wrong.seek(7)
    wrong.error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def next_turn() -> object:
        if take == "records":
            return assigned.take(1, damaged=nobody)
        if take == "columns":
            return assigned.take_all(lambda fetched: fetched.take(1), damaged=nobody)
        return assigned.next_in_turn()

    assert next_turn()
    with pytest.raises(KafkaError):
        next_turn()
    assert next_turn()
    wrong.is_paused, wrong.error = True, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert next_turn()
    assert next_turn()


@pytest.mark.parametrize("before", [None, 1], ids=["new", "known"])
def test_failed_work_goes_back_to_the_place_of_a_seek_in_its_poll(before: int | None) -> None:
    assigned = positions(A)
    position = assigned.get(A)
    if before is not None:
        position.seek(before)
    assigned.poll += 1
    assigned.mark(position)  # simulates a listener that seeks to another offset
    position.seek(7)
    fill(position, 2)
    assert [record.offset for record in assigned.take(10, damaged=nobody)[A]] == [7, 8]
    assigned.go_back(None)
    assert position.position == 7


def test_s89_going_back_ends_where_the_last_poll_began() -> None:
    assigned = positions()
    for position in assigned:
        position.seek(0)
        fill(position, 4)
    assigned.poll += 1
    assert len(assigned.take(3, damaged=nobody)[A]) == 3
    assigned.poll += 1
    assert len(assigned.take(2, damaged=nobody)[B]) == 2
    assigned.go_back(None)
    assert [assigned.get(at).position for at in (A, B)] == [3, 0]


def test_s89_records_committed_by_the_application_count_as_processed() -> None:
    assigned = positions(A)
    position = assigned.get(A)
    position.seek(0)
    fill(position, 4)
    assigned.poll += 1
    assigned.take(4, damaged=nobody)
    assigned.committed({A: OffsetAndMetadata(2, "", EPOCH)}, assigned.poll)
    assigned.committed({A: OffsetAndMetadata(1, "", EPOCH)}, assigned.poll - 1)  # an older commit is ignored
    assigned.go_back(None)
    assert (position.position, position.last_epoch) == (2, EPOCH)


def test_s60_going_back_is_looked_up_and_a_seek_ends_it() -> None:
    position = PartitionPosition(TopicPartition("topic", 0))
    position.seek(7)
    seeks = position.seeks
    position.go_back(5)
    assert (position.position, position.wants_committed, position.came_from) == (None, True, 5)
    assert position.seeks > seeks
    position.seek(6)
    assert (position.position, position.wants_committed, position.came_from) == (6, False, None)


def test_damage_loses_no_record_before_it() -> None:
    assigned = positions(A)
    position = assigned.get(A)
    position.seek(0)
    fill(position, 3)
    damage(position)
    assert [record.offset for record in assigned.take(10, damaged=nobody)[A]] == [0, 1, 2]
    told: list[PartitionPosition] = []
    for _ in range(2):
        with pytest.raises(CorruptRecords, match="from offset 3 is unreadable"):
            assigned.take(10, damaged=told.append)
    assert told == [position, position]


def test_unreadable_records_are_fetched_again_from_their_start() -> None:
    position = positions(A).get(A)
    position.seek(0)
    fill(position, 3)
    damage(position)
    fill(position, 5)
    position.take(10)
    before = position.seeks
    position.fetch_again()
    assert (position.position, position.fetch_offset, position.last_epoch) == (3, 3, EPOCH)
    assert not position.fetched
    assert position.seeks > before  # a response in flight would continue at the former position
