"""The idempotent producer against a broker that checks sequence numbers like Kafka, and that misbehaves (S20-S29)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from tests.support.fake_transactions import FakeCoordinator, HangUp, Step

from oncelog.errors import DeliveryTimeout, FatalError, KafkaError, OutOfOrderSequence
from oncelog.producer.producer import Producer
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog_protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse
from oncelog_protocol.records.batch import RecordBatch, batches

MAX_INT32 = 2**31 - 1
ONE_RECORD_A_BATCH = {"batch_size": 1, "linger_ms": 0}


@pytest.fixture
def checks(fake_broker: Any) -> FakeCoordinator:
    """A fake broker that checks sequence numbers and misbehaves as `checks.script` says."""
    return FakeCoordinator(fake_broker, is_v2=False)


def values(broker: Any, partition: int = 0) -> list[bytes]:
    return [record.value for record in broker.records(partition=partition)]


def log(broker: Any, partition: int = 0) -> list[RecordBatch]:
    return [batch for data in broker.logs.get(("topic", partition), []) for batch in batches(data)]


def sent(broker: Any) -> list[RecordBatch]:
    """Return each received batch in order, including refused ones."""
    return [
        RecordBatch(bytes(data.records))
        for request in broker.requests_of(ProduceRequest)
        for topic in request.topic_data
        for data in topic.partition_data
    ]


async def send(producer: Producer, *numbers: int) -> list[asyncio.Future[Any]]:
    return [await producer.send("topic", b"%d" % number) for number in numbers]


async def test_s20_records_wait_for_a_producer_id(fake_broker: Any, checks: FakeCoordinator) -> None:
    hold = asyncio.Event()
    checks.script[InitProducerIdRequest] = [hold]
    async with Producer(fake_broker.address, linger_ms=0) as producer:
        request = await fake_broker.received(InitProducerIdRequest)
        assert (request.transactional_id, request.transaction_timeout_ms) == (None, MAX_INT32)
        assert (request.producer_id, request.producer_epoch) == (-1, -1)
        sending = asyncio.ensure_future(send(producer, 0))
        hold.set()
        (future,) = await sending
        assert (await future).offset == 0
    (batch,) = log(fake_broker)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1001, 0, 0)
    assert not batch.is_transactional
    assert len(fake_broker.requests_of(InitProducerIdRequest)) == 1


async def test_s20_producer_id_and_metadata_are_requested_again(
    fake_broker: Any, checks: FakeCoordinator, fast: dict[str, int]
) -> None:
    checks.script[InitProducerIdRequest] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Step.DROPPED, Step.LOST]
    async with Producer(fake_broker.address, linger_ms=0, **fast) as producer:
        await fake_broker.received(MetadataRequest, 2)  # the earlier Metadata requests named no topic
        (future,) = await send(producer, 0)
        assert (await future).offset == 0
    assert len(fake_broker.requests_of(InitProducerIdRequest)) == 4
    assert not [batch for batch in sent(fake_broker) if batch.producer_id < 0]


async def test_s20_no_record_is_sent_without_a_producer_id(fake_broker: Any, fast: dict[str, int]) -> None:
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    fake_broker.handlers[InitProducerIdRequest] = lambda request: InitProducerIdResponse(
        error_code=code, producer_epoch=-1
    )
    async with Producer(fake_broker.address, buffer_memory=400, batch_size=200, linger_ms=0, **fast) as producer:
        await fake_broker.received(InitProducerIdRequest)
        futures = [await producer.send("topic", b"x" * 80) for _ in range(2)]
        waiting = asyncio.ensure_future(producer.send("topic", b"x" * 80))
        flushing = asyncio.ensure_future(producer.flush())
        elsewhere = asyncio.ensure_future(producer.send("elsewhere", b"v"))
        await asyncio.sleep(0)
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await asyncio.wait(futures)
        fake_broker.topics["elsewhere"] = 1
        for future in [*futures, waiting, elsewhere]:
            with pytest.raises(FatalError, match="CLUSTER_AUTHORIZATION_FAILED"):
                await future
        await flushing
        with pytest.raises(FatalError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await producer.send("topic", b"later")
    assert fake_broker.requests_of(ProduceRequest) == []


async def test_s14_without_idempotence_there_is_no_producer_id(fake_broker: Any) -> None:
    async with Producer(fake_broker.address, enable_idempotence=False) as producer:
        await producer.send_and_wait("topic", b"v")
    (batch,) = log(fake_broker)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert fake_broker.requests_of(InitProducerIdRequest) == []


async def test_s29_each_producer_has_an_id_of_its_own(fake_broker: Any, checks: FakeCoordinator) -> None:
    for _ in range(2):
        async with Producer(fake_broker.address, linger_ms=0) as producer:
            await producer.send_and_wait("topic", b"the same")
            await producer.send_and_wait("topic", b"the same")  # the broker mistakes the retried batch for a new one
    assert [(batch.producer_id, batch.base_sequence) for batch in log(fake_broker)] == [
        (1001, 0),
        (1001, 1),
        (1002, 0),
        (1002, 1),
    ]


async def five_in_flight(broker: Any, checks: FakeCoordinator, producer: Producer) -> list[asyncio.Future[Any]]:
    """Start a session that the broker knows, and send five batches before the broker responds to the first one as the
    script says.
    """
    steps = checks.script.pop(ProduceRequest, [])
    await producer.send_and_wait("topic", b"0")
    hold = asyncio.Event()
    first = steps[0] if steps else Step.PASS
    seen: list[Any] = []

    async def handle(request: Any) -> Any:
        if len(seen) < 5:
            seen.append(request)
        if len(seen) == 1 and not hold.is_set():
            await hold.wait()
        return await checks._handle(request)

    checks.script[ProduceRequest] = [first, *steps[1:]]
    broker.handlers[ProduceRequest] = handle
    futures = await send(producer, 1, 2, 3, 4, 5)
    await broker.received(ProduceRequest, 2)
    hold.set()
    return futures


@pytest.mark.parametrize(
    "first",
    [
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CORRUPT_MESSAGE,
        Step.DROPPED,
        Step.LOST,
    ],
)
async def test_s23_s24_when_the_first_of_five_fails_all_are_there_once_and_in_order(
    fake_broker: Any, checks: FakeCoordinator, fast: dict[str, int], first: Any
) -> None:
    checks.script[ProduceRequest] = [first]
    async with Producer(fake_broker.address, **ONE_RECORD_A_BATCH, **fast) as producer:
        futures = await five_in_flight(fake_broker, checks, producer)
        assert [(await future).offset for future in futures] == [1, 2, 3, 4, 5]
    if isinstance(first, ErrorCode):
        assert [batch.base_sequence for batch in sent(fake_broker)][:6] == [0, 1, 2, 3, 4, 5]
    assert values(fake_broker) == [b"%d" % number for number in range(6)]
    assert {(batch.producer_id, batch.producer_epoch) for batch in sent(fake_broker)} == {(1001, 0)}
    assert [batch.base_sequence for batch in log(fake_broker)] == list(range(6))


async def test_s8_five_lost_answers_in_a_row_duplicate_no_record(
    fake_broker: Any, checks: FakeCoordinator, fast: dict[str, int]
) -> None:
    checks.script[ProduceRequest] = [Step.LOST] * 5
    async with Producer(fake_broker.address, **ONE_RECORD_A_BATCH, **fast) as producer:
        futures = await five_in_flight(fake_broker, checks, producer)
        assert [(await future).offset for future in futures] == [1, 2, 3, 4, 5]
    assert values(fake_broker) == [b"%d" % number for number in range(6)]


async def test_s26_batches_after_a_refused_one_take_its_sequences(
    fake_broker: Any, checks: FakeCoordinator, fast: dict[str, int]
) -> None:
    checks.script[ProduceRequest] = [ErrorCode.INVALID_RECORD]
    async with Producer(fake_broker.address, **ONE_RECORD_A_BATCH, **fast) as producer:
        refused, *others = await five_in_flight(fake_broker, checks, producer)
        with pytest.raises(KafkaError) as caught:
            await refused
        assert caught.value.code is ErrorCode.INVALID_RECORD
        assert [(await future).offset for future in others] == [1, 2, 3, 4]
    assert values(fake_broker) == [b"0", b"2", b"3", b"4", b"5"]
    assert [(batch.producer_epoch, batch.base_sequence) for batch in log(fake_broker)] == [(0, n) for n in range(5)]


async def test_s27_a_batch_that_expired_ends_the_epoch(
    fake_broker: Any, checks: FakeCoordinator, fast: dict[str, int]
) -> None:
    options = {"request_timeout_ms": 150, "delivery_timeout_ms": 400, "linger_ms": 0, **fast}
    async with Producer(fake_broker.address, **options) as producer:
        await producer.send_and_wait("topic", b"0")
        fake_broker.handlers[ProduceRequest] = lambda request: None
        (lost,) = await send(producer, 1)
        with pytest.raises(DeliveryTimeout, match=r"the last error was .*no answer to Produce"):
            await lost
        fake_broker.handlers[ProduceRequest] = checks._handle
        assert (await (await send(producer, 2))[0]).offset == 1
    assert [(batch.producer_id, batch.producer_epoch, batch.base_sequence) for batch in log(fake_broker)] == [
        (1001, 0, 0),
        (1001, 1, 0),
    ]
    assert len(fake_broker.requests_of(InitProducerIdRequest)) == 1


async def test_s27_behind_the_last_epoch_comes_a_new_producer_id(
    fake_broker: Any, checks: FakeCoordinator, fast: dict[str, int]
) -> None:
    identities = iter([(7, 32767), (8, 0)])

    def give(request: Any) -> Any:
        producer_id, epoch = next(identities)
        return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=epoch)

    fake_broker.handlers[InitProducerIdRequest] = give
    async with Producer(fake_broker.address, linger_ms=0, **fast) as producer:
        await producer.send_and_wait("topic", b"0")
        checks.logs["topic", 0].states[7].batches.clear()  # the broker has lost the state of this producer
        assert (await (await send(producer, 1))[0]).offset == 1
    assert [(batch.producer_id, batch.producer_epoch, batch.base_sequence) for batch in log(fake_broker)] == [
        (7, 32767, 0),
        (8, 0, 0),
    ]


async def test_s28_a_duplicate_is_acknowledged_without_an_offset(fake_broker: Any, checks: FakeCoordinator) -> None:
    checks.script[ProduceRequest] = [ErrorCode.DUPLICATE_SEQUENCE_NUMBER]
    async with Producer(fake_broker.address, linger_ms=0) as producer:
        assert (await (await send(producer, 0))[0]).offset == -1
        assert (await (await send(producer, 1))[0]).offset == 0
    assert [batch.base_sequence for batch in sent(fake_broker)] == [0, 1]


async def test_s28_an_unexplained_out_of_order_batch_is_sent_under_the_next_epoch(
    fake_broker: Any, checks: FakeCoordinator, fast: dict[str, int]
) -> None:
    async with Producer(fake_broker.address, linger_ms=0, **fast) as producer:
        await producer.send_and_wait("topic", b"0")
        checks.script[ProduceRequest] = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        assert (await (await send(producer, 1))[0]).offset == 1
    assert [(batch.producer_epoch, batch.base_sequence) for batch in sent(fake_broker)] == [(0, 0), (0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("log_start_offset", "expected"),
    [
        (-1, [(0, 0), (0, 1), (0, 1)]),  # it is unknown whether the batch was written, so it is sent again
        (1, [(0, 0), (0, 1), (1, 0)]),  # the log start is beyond the producer's records, so retention has deleted them
    ],
)
async def test_s28_a_forgotten_producer_continues_with_a_new_epoch(
    fake_broker: Any,
    checks: FakeCoordinator,
    fast: dict[str, int],
    log_start_offset: int,
    expected: list[tuple[int, int]],
) -> None:
    async with Producer(fake_broker.address, linger_ms=0, **fast) as producer:
        await producer.send_and_wait("topic", b"0")
        forget(fake_broker, checks, log_start_offset)
        assert (await (await send(producer, 1))[0]).offset == 1
    assert [(batch.producer_epoch, batch.base_sequence) for batch in sent(fake_broker)] == expected


async def test_s28_a_forgotten_producer_with_existing_records_fails(
    fake_broker: Any, checks: FakeCoordinator, fast: dict[str, int]
) -> None:
    async with Producer(fake_broker.address, linger_ms=0, **fast) as producer:
        await producer.send_and_wait("topic", b"0")
        forget(fake_broker, checks, log_start_offset=0)
        with pytest.raises(OutOfOrderSequence):
            await (await send(producer, 1))[0]
        assert (await (await send(producer, 2))[0]).offset == 1
    assert [(batch.producer_epoch, batch.base_sequence) for batch in sent(fake_broker)] == [(0, 0), (0, 1), (1, 0)]


def forget(broker: Any, checks: FakeCoordinator, log_start_offset: int) -> None:
    """Let the broker refuse the next batch with UNKNOWN_PRODUCER_ID."""
    answer = ProduceResponse.TopicProduceResponse

    def once(request: Any) -> Any:
        broker.handlers[ProduceRequest] = checks._handle
        refused = answer.PartitionProduceResponse(
            index=0, error_code=ErrorCode.UNKNOWN_PRODUCER_ID, base_offset=-1, log_start_offset=log_start_offset
        )
        return ProduceResponse(responses=[answer(name="topic", partition_responses=[refused])])

    broker.handlers[ProduceRequest] = once


async def test_s26_a_batch_that_is_split_keeps_its_numbers(fake_broker: Any, checks: FakeCoordinator) -> None:
    def limited(name: str, data: Any) -> tuple[int, int]:
        if len(data.records) > 250:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        return checks.append(data.records, name, data.index)

    fake_broker.handlers[ProduceRequest] = lambda request: fake_broker.produced(request, limited)
    async with Producer(fake_broker.address, batch_size=600) as producer:
        futures = [await producer.send("topic", b"%02d" % number * 20) for number in range(60)]
        await producer.flush()
        assert [future.result().offset for future in futures] == list(range(60))
    assert [value[:2] for value in values(fake_broker)] == [b"%02d" % number for number in range(60)]
    first = log(fake_broker)[0]
    assert {(batch.producer_id, batch.producer_epoch) for batch in log(fake_broker)} == {(first.producer_id, 0)}


class TwoBrokers:
    """Two brokers that both have all records; `leader` leads every partition."""

    def __init__(self, first: Any, second: Any, checks: FakeCoordinator) -> None:
        self.brokers = {1: first, 2: second}
        self.checks = checks
        self.leader = self.epoch = 1
        for node_id, broker in self.brokers.items():
            broker.handlers[MetadataRequest] = self.metadata
            broker.handlers[ProduceRequest] = partial(self.produce, node_id)

    def metadata(self, request: Any) -> Any:
        response = self.brokers[1].on_metadata(request)
        broker = MetadataResponse.MetadataResponseBroker(node_id=2, host="127.0.0.1", port=self.brokers[2].port)
        response.brokers.append(broker)
        for topic in response.topics:
            for partition in topic.partitions:
                partition.leader_id, partition.leader_epoch = self.leader, self.epoch
        return response

    def produce(self, node_id: int, request: Any) -> Any:
        refusal = None if node_id == self.leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self.checks.answer(request, self.brokers[node_id].version, refusal=refusal)

    def move(self) -> None:
        self.leader, self.epoch = 3 - self.leader, self.epoch + 1


@pytest.fixture
async def two_brokers(fake_broker: Any, checks: FakeCoordinator) -> AsyncIterator[TwoBrokers]:
    other = type(fake_broker)()
    await other.start()
    yield TwoBrokers(fake_broker, other, checks)
    await other.stop()


async def test_e15_an_answer_hanging_at_the_old_leader_duplicates_no_record(
    two_brokers: TwoBrokers, fast: dict[str, int]
) -> None:
    # The record was replicated, but the former leader never sends its response, and another broker becomes leader. The
    # new leader acknowledges the later batches, and recognises duplicates of the last five batches.
    first, second = two_brokers.brokers.values()
    async with Producer(second.address, **ONE_RECORD_A_BATCH, **fast) as producer:
        await producer.send_and_wait("topic", b"0")

        def hang(request: Any) -> None:
            two_brokers.produce(1, request)

        first.handlers[ProduceRequest] = hang
        (late,) = await send(producer, 1)
        await first.received(ProduceRequest, 2)
        two_brokers.move()
        first.topics["other"] = 1
        await producer.partitions_for("other")
        futures = await send(producer, *range(2, 12))
        await futures[0]
        assert not late.done()
        assert not futures[4].done()
        first.hang_up()
        assert [(await future).offset for future in [late, *futures]] == list(range(1, 12))
    assert values(first) == [b"%d" % number for number in range(12)]
    assert {batch.producer_epoch for batch in log(first)} == {0}


@pytest.mark.parametrize("seed", range(6))
async def test_e15_moving_hanging_and_dying_leaders_duplicate_no_record(
    two_brokers: TwoBrokers, fast: dict[str, int], seed: int
) -> None:
    rng = random.Random(seed)

    async def produce(node_id: int, request: Any) -> Any:
        response = two_brokers.produce(node_id, request)
        outcome = rng.choice(["fine"] * 6 + ["moved", "lost", "hangs"])
        if outcome != "fine":
            two_brokers.move()
        if outcome == "hangs":
            await asyncio.sleep(0.005)
        if outcome in ("lost", "hangs"):
            raise HangUp
        return response

    for node_id, broker in two_brokers.brokers.items():
        broker.handlers[ProduceRequest] = partial(produce, node_id)
    servers = [broker.address for broker in two_brokers.brokers.values()]
    async with Producer(servers, batch_size=100, linger_ms=0, metadata_max_age_ms=2, **fast) as producer:
        futures = []
        for number in range(60):
            futures += await send(producer, number)
            await asyncio.sleep(rng.choice([0, 0, 0.001]))
        await producer.flush()
        assert [future.result().offset for future in futures] == list(range(60))
    written = values(two_brokers.brokers[1])
    assert written == [b"%d" % number for number in range(60)]
    assert {batch.producer_epoch for batch in log(two_brokers.brokers[1])} == {0}


class Chaos:
    """Makes half of the requests fail, in all ways in which a broker and its network can fail."""

    def __init__(self, checks: FakeCoordinator, seed: int) -> None:
        self.checks = checks
        self.rng = random.Random(seed)
        self.is_over = False

    async def handle(self, request: Any) -> Any:
        outcome = "fine" if self.is_over else self.rng.choice(["fine"] * 4 + ["lost", "dropped", "refused", "unsure"])
        if outcome == "dropped":
            self.checks.script[ProduceRequest] = [Step.DROPPED]
        elif outcome == "lost":
            self.checks.script[ProduceRequest] = [Step.LOST]
        elif outcome == "refused":
            codes = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.CORRUPT_MESSAGE]
            self.checks.script[ProduceRequest] = [self.rng.choice(codes)]
        response = await self.checks._handle(request)
        if outcome == "unsure":
            for topic in response.responses:
                for answer in topic.partition_responses:
                    answer.error_code = answer.error_code or self.rng.choice(
                        [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
                    )
        return response


@pytest.mark.parametrize("seed", range(12))
async def test_s8_s22_s24_each_record_once_and_in_order_whatever_goes_wrong(
    fake_broker: Any, checks: FakeCoordinator, fast: dict[str, int], seed: int
) -> None:
    chaos = Chaos(checks, seed)
    partitions = 3
    fake_broker.topics["topic"] = partitions
    fake_broker.handlers[ProduceRequest] = chaos.handle
    futures: dict[int, list[asyncio.Future[Any]]] = {partition: [] for partition in range(partitions)}
    async with Producer(fake_broker.address, batch_size=120, linger_ms=0, **fast) as producer:
        for number in range(120):
            partition = chaos.rng.randrange(partitions)
            futures[partition].append(await producer.send("topic", b"%d" % number, partition=partition))
        await producer.flush()
    for partition, of_partition in futures.items():
        written = values(fake_broker, partition)
        assert written == sorted(written, key=int), "out of order"
        assert len(written) == len(of_partition), "lost or doubled"
        assert [future.result().offset for future in of_partition] == list(range(len(written)))
        assert {batch.producer_epoch for batch in log(fake_broker, partition)} <= {0}


@pytest.mark.parametrize("seed", range(8))
async def test_s26_s27_acknowledged_records_are_there_once_when_others_fail(
    fake_broker: Any, checks: FakeCoordinator, fast: dict[str, int], seed: int
) -> None:
    chaos = Chaos(checks, seed)

    async def handle(request: Any) -> Any:
        if not chaos.is_over and chaos.rng.random() < 0.2:
            checks.script[ProduceRequest] = [ErrorCode.INVALID_RECORD]
            return await checks._handle(request)
        return await chaos.handle(request)

    fake_broker.handlers[ProduceRequest] = handle
    async with Producer(fake_broker.address, batch_size=120, linger_ms=0, retries=3, **fast) as producer:
        futures = await send(producer, *range(100))
        await producer.flush()
        chaos.is_over = True
        futures += await send(producer, *range(100, 110))
        await producer.flush()
    written = [int(value) for value in values(fake_broker)]
    acknowledged = [number for number, future in enumerate(futures) if future.exception() is None]
    assert len(set(written)) == len(written), "doubled"
    kept = set(acknowledged)
    assert [number for number in written if number in kept] == acknowledged, "lost or out of order"
    assert set(range(100, 110)) <= kept, "the producer does not go on"
    for number in acknowledged:
        assert futures[number].result().offset in (-1, written.index(number))
