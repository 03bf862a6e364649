from typing import Any

import pytest

from oncelog.cluster import Broker, Cluster, Partition, Topic
from oncelog.config import ProducerConfig
from oncelog.errors import MessageTooLarge
from oncelog.producer.accumulator import Accumulator, PartitionQueue
from oncelog.producer.session import ProducerSession
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.packing import Packed

VALUE = b"x" * 100


class NoWaiter:
    def done(self) -> bool:
        return True


def accumulator(**options: Any) -> Accumulator:
    config = {"batch_size": 1000, "linger_ms": 10, "request_timeout_ms": 1000, "delivery_timeout_ms": 2000, **options}
    return Accumulator(ProducerConfig(bootstrap_servers="h:1", **config).validate())


def cluster(leaders: dict[int, int]) -> Cluster:
    partitions = {index: Partition(index, leader, 1) for index, leader in leaders.items()}
    brokers = {node: Broker(node, "h", 1) for node in leaders.values()}
    return Cluster("c", -1, brokers, {"t": Topic("t", partitions=partitions)})


def put(records: Accumulator, queue: PartitionQueue, now: float = 0.0, value: bytes = VALUE) -> bool:
    if queue.tail is not None and queue.tail.append(0, None, value, (), NoWaiter()):  # type: ignore[arg-type]
        return True
    return records.open(queue, now, 0, None, value, (), NoWaiter())  # type: ignore[arg-type]


def filled(records: Accumulator, batches: int, partition: int = 0) -> PartitionQueue:
    queue = records.queue("t", partition)
    while len(queue.batches) < batches:
        assert put(records, queue)
    records.set_leaders(cluster({partition: 1}))
    return queue


def drain(records: Accumulator, now: float = 0.0) -> list[Any]:
    return [batch for queues in records.ready(now).nodes.values() for batch in records.drain(queues)]


def test_a_batch_waits_for_linger_or_for_being_full() -> None:
    records = accumulator()
    queue = filled(records, 1)
    ready = records.ready(0.0)
    assert ready.nodes == {}
    assert ready.next_check == pytest.approx(0.010)
    assert records.ready(0.010).nodes == {1: [queue]}
    while len(queue.batches) < 2:
        put(records, queue)
    assert records.ready(0.0).nodes == {1: [queue]}


@pytest.mark.parametrize("reason", ["flush", "memory"])
def test_no_batch_lingers_when_a_flush_waits(reason: str) -> None:
    records = accumulator()
    filled(records, 1)
    records.is_flushing = reason == "flush"
    assert records.ready(0.0, is_memory_short=reason == "memory").nodes


def test_without_leader_a_batch_waits_until_it_expires() -> None:
    records = accumulator()
    put(records, records.queue("t", 0))
    ready = records.ready(1.0)
    assert ready.leaderless == {"t"}
    assert ready.next_check == 2.0
    assert records.expire(1.9) == []
    (expired,) = records.expire(2.0)
    assert expired.records_count == 1
    assert records.free_memory == 33_554_432
    assert records.is_complete(records.last_number)


def test_a_tail_that_is_drained_takes_no_more_records() -> None:
    records = accumulator()
    queue = filled(records, 1)
    (batch,) = drain(records, 1.0)
    assert queue.tail is None
    put(records, queue, 1.0)
    assert queue.batches[0] is not batch


def test_memory_is_taken_by_batch_and_given_back() -> None:
    records = accumulator(buffer_memory=2000)
    queue = filled(records, 2)
    assert records.free_memory == 0
    other = records.queue("t", 1)
    assert not put(records, other)
    batches = drain(records)
    records.complete(batches[0])
    assert put(records, other)
    assert queue.in_flight == 0


def test_a_drained_batch_gives_back_what_it_does_not_need() -> None:
    records = accumulator(buffer_memory=2000)
    filled(records, 1)
    (batch,) = drain(records, 1.0)
    assert records.free_memory == 2000 - batch.size


def test_a_whole_batch_takes_its_size_and_ends_the_tail() -> None:
    records = accumulator(buffer_memory=3000)
    queue = filled(records, 1)
    packed = Packed(bytearray(1500), [0] * 3, 0)
    assert records.add_whole(queue, 0.0, packed, NoWaiter())  # type: ignore[arg-type]
    assert records.free_memory == 3000 - 1000 - 1500
    assert queue.tail is None, "a record that is added later comes after the whole batch"
    assert not records.add_whole(queue, 0.0, packed, NoWaiter())  # type: ignore[arg-type]
    first, second = drain(records), drain(records)
    assert [each.records_count for each in (*first, *second)] == [1, 3], "neither batch lingers"
    for batch in (*first, *second):
        records.complete(batch)
    assert records.free_memory == 3000


def test_records_that_can_never_be_sent_are_refused_at_once() -> None:
    records = accumulator(max_request_size=500, buffer_memory=2000)
    with pytest.raises(MessageTooLarge, match=r"max\.request\.size is 500"):
        put(records, records.queue("t", 0), value=b"x" * 500)
    small = accumulator(buffer_memory=300)
    with pytest.raises(MessageTooLarge, match=r"buffer\.memory is 300"):
        put(small, small.queue("t", 0), value=b"x" * 500)
    assert records.is_complete(records.last_number)


def test_a_record_that_cannot_be_encoded_leaves_nothing_behind() -> None:
    records = accumulator()
    with pytest.raises(TypeError):
        put(records, records.queue("t", 0), value="text")  # type: ignore[arg-type]
    assert records.ready(100.0).nodes == {}
    assert records.is_complete(records.last_number)


def test_a_request_holds_one_batch_of_a_partition_and_no_more_than_its_size() -> None:
    records = accumulator(max_request_size=1500)
    first, second = filled(records, 2, 0), filled(records, 2, 1)
    records.set_leaders(cluster({0: 1, 1: 1}))
    (batch,) = drain(records)
    assert batch.partition == 0
    (batch,) = drain(records)
    assert batch.partition == 1  # this partition is the next to be sent
    assert len(first.batches) == len(second.batches) == 1


def test_a_batch_sent_again_goes_first_and_alone() -> None:
    records = accumulator(max_in_flight_requests_per_connection=5)
    queue = filled(records, 3)
    first, second = drain(records) + drain(records)
    records.requeue(first, not_before=0.5)
    assert records.ready(1.0).nodes == {}  # the second batch is still in flight
    records.requeue(second, not_before=0.5)
    assert list(queue.batches)[:2] == [first, second]
    assert records.ready(0.4).nodes == {}
    assert drain(records, 0.5) == [first]
    assert drain(records, 0.5) == []  # the retried batch is sent alone until it is acknowledged
    records.complete(first)
    assert drain(records, 0.5) == [second]


def test_one_request_in_flight_means_one_per_partition() -> None:
    records = accumulator(max_in_flight_requests_per_connection=1)
    filled(records, 3)
    (first,) = drain(records)
    assert drain(records) == []
    records.complete(first)
    assert len(drain(records)) == 1


def test_the_pieces_of_a_split_batch_take_its_place() -> None:
    records = accumulator()
    queue = filled(records, 3)
    first, second = drain(records) + drain(records)
    count = first.records_count
    number = records.last_number
    records.split(first)
    records.requeue(second, 0.0)
    pieces = [batch for batch in queue.batches if len(batch.order) > 1]
    assert list(queue.batches)[: len(pieces) + 1] == [*pieces, second]
    assert sum(piece.records_count for piece in pieces) == count
    while not records.is_complete(number):
        for batch in drain(records, 1.0):
            records.complete(batch)
    assert records.free_memory == 33_554_432


def test_an_answer_after_a_drop_finds_no_batch() -> None:
    records = accumulator()
    filled(records, 2)
    (batch,) = drain(records)
    assert len(records.drop_all()) == 2
    records.complete(batch)
    records.requeue(batch, 0.0)
    records.split(batch)
    assert records.free_memory == 33_554_432
    assert records.ready(10.0).nodes == {}


def test_flush_knows_when_all_before_it_are_done() -> None:
    records = accumulator()
    filled(records, 2)
    number = records.last_number
    first = drain(records)[0]
    put(records, records.queue("t", 1))
    records.complete(first)
    assert not records.is_complete(number)
    for batch in drain(records, 1.0):
        records.complete(batch)
    assert records.is_complete(number)


def test_flush_waits_for_the_pieces_of_a_batch_also_where_others_have_come_after_it() -> None:
    records = accumulator()
    queue = filled(records, 1)
    assert put(records, queue)
    number = records.last_number
    (batch,) = drain(records, 1.0)
    assert put(records, records.queue("t", 1))
    records.split(batch)
    assert not records.is_complete(number)
    for _ in range(2):
        (piece,) = drain(records, 1.0)
        records.complete(piece)
    assert records.is_complete(number)


@pytest.mark.parametrize(
    "reason", ["backoff", "its transaction", "no producer id", "an unresolved batch", "an old epoch"]
)
def test_s25_a_stalled_partition_does_not_delay_the_others(reason: str) -> None:
    session = ProducerSession()
    config = ProducerConfig(bootstrap_servers="h:1", batch_size=150, linger_ms=0, delivery_timeout_ms=40_000)
    standing = {("t", 0)} if reason == "its transaction" else set()
    records = Accumulator(config, session, lambda partition: partition not in standing)
    queues = [filled(records, 3, partition) for partition in (0, 1)]
    records.set_leaders(cluster({0: 1, 1: 1}))
    if reason == "no producer id":
        assert drain(records) == []
        return
    session.identify(ProducerIdAndEpoch(7, 0))
    if reason != "its transaction":
        for batch in drain(records):
            if batch.partition == 1:
                records.complete(batch, 0)
            elif reason == "backoff":
                records.requeue(batch, not_before=1.0)
            else:
                session.identify(ProducerIdAndEpoch(7, 1))  # the batch of epoch 0 is still in flight
    assert {batch.partition for batch in drain(records)} == {1}
    assert len(queues[0].batches) >= 2
