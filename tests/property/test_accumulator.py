"""No record is lost, duplicated or reordered by the accumulator, whichever requests succeed, fail, are split or arrive
late.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oncelog.cluster import Broker, Cluster, Partition, Topic
from oncelog.config import ProducerConfig
from oncelog.producer.accumulator import Accumulator
from oncelog.producer.batch import ProducerBatch
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.record import read_records

PARTITIONS = 3
BUFFER = 4000

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, PARTITIONS - 1), st.integers(0, 150)),
        st.tuples(st.just("drain"), st.integers(0, 20), st.just(0)),
        st.tuples(st.sampled_from(["succeed", "retry", "split"]), st.integers(0, 10), st.just(0)),
    ),
    max_size=120,
)


class Waiter:
    """Waits for one record, and counts how many times that record is acknowledged."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.results: list[Any] = []

    def done(self) -> bool:
        return bool(self.results)

    def set_result(self, result: Any) -> None:
        self.results.append(result)


class Model:
    """A model of a broker: its logs, and requests in flight on one connection, which get their responses in order."""

    def __init__(self, max_in_flight: int) -> None:
        config = ProducerConfig(
            bootstrap_servers="h:1",
            batch_size=300,
            buffer_memory=BUFFER,
            max_in_flight_requests_per_connection=max_in_flight,
        )
        self.records = Accumulator(config)
        self.queues = [self.records.queue("t", index) for index in range(PARTITIONS)]
        partitions = {index: Partition(index, 1, 1) for index in range(PARTITIONS)}
        self.records.set_leaders(Cluster("c", 1, {1: Broker(1, "h", 1)}, {"t": Topic("t", partitions=partitions)}))
        self.max_in_flight = max_in_flight
        self.in_flight: list[list[ProducerBatch]] = []
        self.logs: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
        self.sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.waiters: list[Waiter] = []
        self.now = 0.0

    def send(self, partition: int, size: int) -> None:
        queue, value = self.queues[partition], b"%d:" % len(self.waiters) + bytes(size)
        waiter: Any = Waiter(len(self.waiters))
        is_in = queue.tail is not None and queue.tail.append(0, None, value, (), waiter)
        if is_in or self.records.open(queue, self.now, 0, None, value, (), waiter):
            self.waiters.append(waiter)
            self.sent[partition].append(value)

    def drain(self, ms: int) -> None:
        self.now += ms / 1000
        for queues in self.records.ready(self.now).nodes.values():
            if len(self.in_flight) < self.max_in_flight:
                self.in_flight.append(self.records.drain(queues))

    def answer(self, outcome: str) -> None:
        if not self.in_flight:
            return
        for batch in self.in_flight.pop(0):
            if outcome == "retry":
                self.records.requeue(batch, self.now)
            elif outcome == "split" and batch.records_count > 1:
                self.records.split(batch)
            else:
                log = self.logs[batch.partition]
                offset = len(log)
                log += [record.value for record in read_records(RecordBatch(batch.builder.build()))]
                self.records.complete(batch)
                batch.acknowledge(offset)

    def finish(self) -> None:
        self.records.is_flushing = True
        for _ in range(1000):
            self.drain(1)
            self.answer("succeed")
            if self.records.is_complete(self.records.last_number):
                return
        raise AssertionError("it never comes to an end")

    def check_memory(self) -> None:
        held = sum(batch.reserved for siblings in self.records.incomplete.values() for batch in siblings)
        assert self.records.free_memory + held == BUFFER


def play(model: Model, steps: list[tuple[str, int, int]]) -> None:
    for what, first, second in steps:
        if what == "send":
            model.send(first, second)
        elif what == "drain":
            model.drain(first)
        else:
            model.answer(what)
        model.check_memory()
    model.finish()
    assert model.records.free_memory == BUFFER


@given(STEPS)
def test_sequential_requests_neither_lose_duplicate_nor_reorder_records(steps: list[tuple[str, int, int]]) -> None:
    model = Model(max_in_flight=1)
    play(model, steps)
    assert model.logs == model.sent
    assert all(len(waiter.results) == 1 for waiter in model.waiters)


@given(STEPS)
def test_no_record_is_lost_or_doubled_with_requests_pipelined(steps: list[tuple[str, int, int]]) -> None:
    model = Model(max_in_flight=5)
    play(model, steps)
    assert [sorted(map(bytes, log)) for log in model.logs] == [sorted(sent) for sent in model.sent]  # type: ignore[arg-type]
    for waiter in model.waiters:
        (metadata,) = waiter.results
        value = model.logs[metadata.partition][metadata.offset]
        assert value is not None
        assert value.startswith(b"%d:" % waiter.number)


@given(STEPS.filter(lambda steps: not any(what in ("retry", "split") for what, _, _ in steps)))
def test_pipelined_requests_that_succeed_keep_the_order(steps: list[tuple[str, int, int]]) -> None:
    model = Model(max_in_flight=5)
    play(model, steps)
    assert model.logs == model.sent
