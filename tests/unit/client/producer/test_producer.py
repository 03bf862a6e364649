import asyncio
from typing import Any

import pytest
from tests.support.fake_broker import FakeBroker
from tests.support.loop_turns import settle
from tests.support.virtual_time import run_virtually

from oncelog.connection.protocol import ConnectionProtocol
from oncelog.errors import (
    AuthorizationFailed,
    BufferExhausted,
    ClientClosed,
    ConfigError,
    ConnectionFailed,
    DeliveryTimeout,
    KafkaError,
    MessageTooLarge,
    RejectedWithBatch,
    RequestTimedOut,
    StaleMetadata,
)
from oncelog.producer.batch import ProducerBatch
from oncelog.producer.producer import Producer, RecordMetadata
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.produce import ProduceRequest

SURELY_SECONDS = 10


async def test_a_record_goes_to_the_log_and_its_place_comes_back(fake_broker: Any) -> None:
    async with Producer(fake_broker.address, linger_ms=0) as producer:
        metadata = await producer.send_and_wait("topic", b"v", key=b"k", headers=[("h", b"x")], timestamp_ms=77)
    assert metadata == RecordMetadata("topic", 0, 0, 77)
    (record,) = fake_broker.records()
    assert (record.key, record.value, record.headers, record.timestamp) == (b"k", b"v", [("h", b"x")], 77)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_many_records_keep_their_order(fake_broker: Any, compression: str) -> None:
    async with Producer(fake_broker.address, batch_size=500, compression_type=compression) as producer:
        futures = [await producer.send("topic", b"%d" % number) for number in range(300)]
        await producer.flush()
        assert [future.result().offset for future in futures] == list(range(300))
    assert [record.value for record in fake_broker.records()] == [b"%d" % number for number in range(300)]
    assert 3 < len(fake_broker.logs["topic", 0]) < 100


async def test_linger_gathers_records(fake_broker: Any) -> None:
    async with Producer(fake_broker.address, linger_ms=20) as producer:
        await asyncio.gather(*(producer.send_and_wait("topic", b"v") for _ in range(10)))
    assert len(fake_broker.logs["topic", 0]) == 1


async def test_keys_choose_the_partition_and_an_explicit_one_wins(fake_broker: Any) -> None:
    fake_broker.topics["topic"] = 5
    async with Producer(fake_broker.address) as producer:
        futures = [await producer.send("topic", b"v", key=b"foobar") for _ in range(3)]
        futures.append(await producer.send("topic", b"v", key=b"foobar", partition=1))
        places = [(await future).partition for future in futures]
        assert await producer.partitions_for("topic") == [0, 1, 2, 3, 4]
    java = (-790332482 & 0x7FFFFFFF) % 5
    assert places == [java, java, java, 1]


async def test_keys_may_be_ignored(fake_broker: Any) -> None:
    fake_broker.topics["topic"] = 5
    async with Producer(fake_broker.address, partitioner_ignore_keys=True) as producer:
        futures = [await producer.send("topic", b"v", key=b"%d" % number) for number in range(20)]
        await producer.flush()
    assert len({future.result().partition for future in futures}) == 1


async def test_a_send_without_acks_needs_no_answer(fake_broker: Any) -> None:
    async with Producer(fake_broker.address, acks=0) as producer:
        assert (await producer.send_and_wait("topic", b"v")).offset == -1
        await asyncio.sleep(0.01)
    assert len(fake_broker.records()) == 1


async def test_a_leader_that_has_moved_is_looked_up_again(fake_broker: Any, fast: dict[str, int]) -> None:
    refused = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS])

    def produce(request: Any) -> Any:
        code = next(refused, None)
        return fake_broker.on_produce(request) if code is None else fake_broker.produced(request, lambda *_: (code, -1))

    async with Producer(fake_broker.address, **fast) as producer:
        fake_broker.handlers[ProduceRequest] = produce
        before = len(fake_broker.requests_of(MetadataRequest))
        assert (await producer.send_and_wait("topic", b"v")).offset == 0
    assert len(fake_broker.requests_of(MetadataRequest)) > before + 1
    assert len(fake_broker.requests_of(ProduceRequest)) == 3


async def test_a_lost_connection_is_made_again_and_nothing_is_lost(
    fake_broker: Any, fast: dict[str, int], hang_up: type[Exception]
) -> None:
    lives = iter([True, False, True, False])

    def produce(request: Any) -> Any:
        if not next(lives, True):
            raise hang_up
        return fake_broker.on_produce(request)

    fake_broker.handlers[ProduceRequest] = produce
    async with Producer(
        fake_broker.address, batch_size=100, max_in_flight_requests_per_connection=1, **fast
    ) as producer:
        futures = [await producer.send("topic", b"%d" % number) for number in range(100)]
        await producer.flush()
        assert all(future.result() for future in futures)
    assert [record.value for record in fake_broker.records()] == [b"%d" % number for number in range(100)]


async def test_a_broker_that_restarts_is_waited_for(fake_broker: Any, fast: dict[str, int]) -> None:
    async with Producer(fake_broker.address, **fast) as producer:
        await producer.send_and_wait("topic", b"0")
        await fake_broker.stop()
        future = await producer.send("topic", b"1")
        await asyncio.sleep(0.03)
        assert not future.done()
        await fake_broker.start()
        assert (await future).offset == 1


async def test_a_batch_too_large_for_the_topic_is_split(fake_broker: Any) -> None:
    def limited(name: str, data: Any) -> tuple[int, int]:
        if len(data.records) > 700:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        return 0, fake_broker.append(data.records, name, data.index)

    fake_broker.handlers[ProduceRequest] = lambda request: fake_broker.produced(request, limited)
    async with Producer(fake_broker.address, batch_size=4000) as producer:
        futures = [await producer.send("topic", b"%02d" % number * 50) for number in range(30)]
        await producer.flush()
        assert [future.result().offset for future in futures] == list(range(30))
        with pytest.raises(MessageTooLarge):
            await producer.send_and_wait("topic", b"x" * 800)
    assert [record.value[:2] for record in fake_broker.records()] == [b"%02d" % number for number in range(30)]


async def test_an_error_that_stays_fails_the_records_of_its_batch_only(fake_broker: Any) -> None:
    def produce(request: Any) -> Any:
        return fake_broker.produced(request, lambda name, data: (29, -1) if data.index else (0, 7))

    fake_broker.topics["topic"] = 2
    fake_broker.handlers[ProduceRequest] = produce
    async with Producer(fake_broker.address) as producer:
        good = await producer.send("topic", b"v", partition=0)
        bad = await producer.send("topic", b"v", partition=1)
        assert (await good).offset == 7
        with pytest.raises(AuthorizationFailed):
            await bad


def test_a_record_not_acknowledged_in_time_fails(fast: dict[str, int]) -> None:
    async def main() -> None:
        broker = FakeBroker()
        await broker.start()
        broker.handlers[ProduceRequest] = lambda request: None
        times = {"request_timeout_ms": 50, "delivery_timeout_ms": 500, "linger_ms": 0}
        async with Producer(broker.address, **fast, **times) as producer:
            began = asyncio.get_running_loop().time()
            with pytest.raises(DeliveryTimeout, match="no answer to Produce"):
                await producer.send_and_wait("topic", b"v")
            assert 0.5 <= asyncio.get_running_loop().time() - began <= 0.55
        assert 8 <= len(broker.requests_of(ProduceRequest)) <= 10
        await broker.stop()

    run_virtually(main())


@pytest.mark.virtual_time
async def test_a_broker_that_never_comes_back_is_named_in_the_error(fake_broker: Any, fast: dict[str, int]) -> None:
    async with Producer(fake_broker.address, **fast, request_timeout_ms=100, delivery_timeout_ms=500) as producer:
        await producer.send_and_wait("topic", b"v")
        await fake_broker.stop()
        with pytest.raises(DeliveryTimeout, match=fake_broker.address):
            await producer.send_and_wait("topic", b"v")


async def test_retries_may_be_limited(fake_broker: Any, fast: dict[str, int]) -> None:
    fake_broker.handlers[ProduceRequest] = lambda request: fake_broker.produced(request, lambda *_: (19, -1))
    async with Producer(fake_broker.address, **fast, retries=2) as producer:
        future = await producer.send("topic", b"v")
        await asyncio.wait([future])
        assert future.exception().code is ErrorCode.NOT_ENOUGH_REPLICAS  # type: ignore[union-attr]
    assert len(fake_broker.requests_of(ProduceRequest)) == 3


async def test_waiting_for_the_transaction_before_takes_no_tries(fake_broker: Any, fast: dict[str, int]) -> None:
    def produce(request: Any) -> Any:
        if len(fake_broker.requests_of(ProduceRequest)) <= 4:
            return fake_broker.produced(request, lambda *_: (ErrorCode.CONCURRENT_TRANSACTIONS, -1))
        return fake_broker.on_produce(request)

    fake_broker.handlers[ProduceRequest] = produce
    async with Producer(fake_broker.address, **fast, retries=1) as producer:
        assert (await producer.send_and_wait("topic", b"v")).offset == 0


def test_send_waits_for_room_and_gives_up_in_time() -> None:
    async def main() -> None:
        broker = FakeBroker()
        await broker.start()
        gate = asyncio.Event()

        async def produce(request: Any) -> Any:
            await gate.wait()
            return broker.on_produce(request)

        broker.handlers[ProduceRequest] = produce
        async with Producer(
            broker.address, buffer_memory=400, batch_size=200, max_block_ms=20, linger_ms=0
        ) as producer:
            await producer.send("topic", b"x" * 80)
            await producer.send("topic", b"x" * 80)
            with pytest.raises(BufferExhausted, match=r"no room within max\.block\.ms=20"):
                await producer.send("topic", b"y" * 80)
            waiting = [asyncio.ensure_future(producer.send("topic", b"%d" % number * 80)) for number in range(5)]
            await asyncio.sleep(0)
            gate.set()
            for sending in waiting:
                await (await sending)
        values = [record.value[:1] for record in broker.records()]
        assert values == [b"x", b"x", b"0", b"1", b"2", b"3", b"4"]
        await broker.stop()

    run_virtually(main())


async def test_sending_to_a_missing_topic_fails(fake_broker: Any, fast: dict[str, int]) -> None:
    async with Producer(fake_broker.address, **fast, max_block_ms=300) as producer:
        with pytest.raises(RequestTimedOut, match=r"topic 'other': no metadata within 0\.3 s"):
            await producer.send("other", b"v")
        fake_broker.topics["other"] = 1
        await producer.send_and_wait("other", b"v")


async def test_sending_to_a_missing_partition_waits_until_it_exists(fake_broker: Any) -> None:
    async with Producer(fake_broker.address) as producer:
        with pytest.raises(StaleMetadata, match="'topic' has the partitions 0 to 0, not 3"):
            await producer.send("topic", b"v", partition=3)
        fake_broker.topics["topic"] = 4
        assert (await producer.send_and_wait("topic", b"v", partition=3)).partition == 3


@pytest.mark.parametrize(
    "record",
    [
        {"value": "text"},
        {"value": 5},
        {"value": b"", "key": "text"},
        {"value": b"", "headers": {"n": b"v"}},
        {"value": b"", "headers": [("n", "v")]},
        {"value": b"", "headers": [(b"n", b"v")]},
    ],
)
async def test_text_is_refused_and_nothing_is_sent(fake_broker: Any, record: dict[str, Any]) -> None:
    async with Producer(fake_broker.address, linger_ms=0) as producer:
        with pytest.raises(TypeError, match="must be bytes"):
            await producer.send("topic", **record)
        await producer.send_and_wait("topic", b"v")
        with pytest.raises(TypeError, match="must be bytes"):
            await producer.send("topic", **record)
    assert [record.value for record in fake_broker.records()] == [b"v"]


@pytest.mark.parametrize("timestamp_ms", [-1, 2**63, 2**70])
async def test_a_time_that_a_batch_cannot_say_is_refused(fake_broker: Any, timestamp_ms: int) -> None:
    async with Producer(fake_broker.address) as producer:
        with pytest.raises(ValueError, match=f"timestamp_ms={timestamp_ms}: must be from 0 to"):
            await producer.send("topic", b"v", timestamp_ms=timestamp_ms)
        await producer.send_and_wait("topic", b"v", timestamp_ms=2**63 - 1)
    assert [record.timestamp for record in fake_broker.records()] == [2**63 - 1]


class Broken(Exception):
    """An exception that no code expects."""


def break_once(monkeypatch: pytest.MonkeyPatch, place: str, topic_partition: tuple[str, int]) -> None:
    """Let the method `place` of ProducerBatch raise an exception for the first batch of a partition."""
    works, broken = getattr(ProducerBatch, place), []

    def fails(batch: ProducerBatch, *args: Any, **options: Any) -> Any:
        if (batch.topic, batch.partition) == topic_partition and not broken:
            broken.append(batch)
            raise Broken("cannot be done")
        return works(batch, *args, **options)

    monkeypatch.setattr(ProducerBatch, place, fails)


@pytest.mark.parametrize("place", ["close", "build"])
async def test_an_exception_between_drain_and_send_fails_only_its_batch(
    fake_broker: Any, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    fake_broker.topics["topic"] = 3
    break_once(monkeypatch, place, ("topic", 1))
    async with Producer(fake_broker.address, linger_ms=5) as producer:
        futures = [await producer.send("topic", b"v", partition=partition) for partition in (0, 1, 2)]
        async with asyncio.timeout(SURELY_SECONDS):
            await producer.flush()
            with pytest.raises(KafkaError, match="could not be sent: Broken"):
                await futures[1]
            assert [(await futures[index]).offset for index in (0, 2)] == [0, 0]
            assert (await producer.send_and_wait("topic", b"later", partition=1)).offset == 0
        assert producer._accumulator.free_memory == producer.config.buffer_memory
    assert [len(fake_broker.records("topic", partition)) for partition in range(3)] == [1, 1, 1]


async def test_an_exception_of_the_request_fails_its_batches(fake_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    works, left = ConnectionProtocol.send, [Broken("cannot be encoded")]

    def fails(protocol: Any, request: Any, *args: Any) -> Any:
        if isinstance(request, ProduceRequest) and left:
            raise left.pop()
        return works(protocol, request, *args)

    monkeypatch.setattr(ConnectionProtocol, "send", fails)
    async with Producer(fake_broker.address) as producer, asyncio.timeout(SURELY_SECONDS):
        with pytest.raises(KafkaError, match="could not be sent: Broken"):
            await producer.send_and_wait("topic", b"v")
        assert (await producer.send_and_wait("topic", b"w")).offset == 0


async def test_a_batch_that_cannot_be_split_fails(fake_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    break_once(monkeypatch, "split", ("topic", 0))
    fake_broker.handlers[ProduceRequest] = lambda request: fake_broker.produced(
        request, lambda *_: (ErrorCode.MESSAGE_TOO_LARGE, -1)
    )
    async with Producer(fake_broker.address) as producer, asyncio.timeout(SURELY_SECONDS):
        futures = [await producer.send("topic", b"v") for _ in range(3)]
        for future in futures:
            with pytest.raises(KafkaError, match="could not be sent: Broken"):
                await future
        del fake_broker.handlers[ProduceRequest]
        assert (await producer.send_and_wait("topic", b"w")).offset == 0


async def test_only_the_records_that_are_at_fault_get_their_error(fake_broker: Any) -> None:
    def refuse(request: ProduceRequest) -> Any:
        response = fake_broker.produced(request, lambda *_: (ErrorCode.INVALID_RECORD, -1))
        (answer,) = response.responses[0].partition_responses
        answer.error_message = "one or more records have been rejected"
        at_fault = type(answer).BatchIndexAndErrorMessage
        answer.record_errors = [
            at_fault(batch_index=1, batch_index_error_message="no key"),
            at_fault(batch_index=99, batch_index_error_message="there is no such record"),
            at_fault(batch_index=2, batch_index_error_message=None),
        ]
        return response

    fake_broker.handlers[ProduceRequest] = refuse
    async with Producer(fake_broker.address) as producer:
        futures = [await producer.send("topic", b"v") for _ in range(4)]
        errors = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(error) for error in errors] == [RejectedWithBatch, KafkaError, KafkaError, RejectedWithBatch]
    assert [error.code for error in errors[1:3]] == [ErrorCode.INVALID_RECORD] * 2
    assert [error.message for error in errors[1:3]] == ["no key", "one or more records have been rejected"]


async def test_the_error_of_a_single_record_at_fault_has_the_code_of_the_batch(fake_broker: Any) -> None:
    def refuse(request: ProduceRequest) -> Any:
        response = fake_broker.produced(request, lambda *_: (ErrorCode.INVALID_TIMESTAMP, -1))
        (answer,) = response.responses[0].partition_responses
        answer.record_errors = [type(answer).BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="old")]
        return response

    fake_broker.handlers[ProduceRequest] = refuse
    async with Producer(fake_broker.address) as producer:
        with pytest.raises(KafkaError, match="old") as caught:
            await producer.send_and_wait("topic", b"v")
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


async def test_a_cancelled_send_has_handed_over_no_record(fake_broker: Any) -> None:
    options = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}
    async with Producer(fake_broker.address, batch_size=200, **options) as producer:
        await producer.send("topic", b"x" * 80)
        cancelled = asyncio.ensure_future(producer.send("topic", b"y" * 80))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await producer.send("topic", b"z" * 80)
    assert [record.value for record in fake_broker.records()] == [b"x" * 80, b"z" * 80]


class SlowReader:
    """A proxy in front of the fake broker that forwards bytes only while `may_read` is set, and only as fast as the
    receiver reads.
    """

    def __init__(self, broker: Any) -> None:
        self.may_read = asyncio.Event()
        self.may_read.set()
        self._broker = broker
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "SlowReader":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        metadata = self._broker.on_metadata

        def by_way_of_us(request: Any) -> Any:
            answer = metadata(request)
            for node in answer.brokers:
                node.port = self.port
            return answer

        self._broker.handlers[MetadataRequest] = by_way_of_us
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await settle()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await settle()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        open_ends = [writer]
        try:
            answers, behind = await asyncio.open_connection("127.0.0.1", self._broker.port)
            open_ends.append(behind)
            await asyncio.gather(self._pass_on(reader, behind, waits=True), self._pass_on(answers, writer))
        except (asyncio.CancelledError, ConnectionError):
            pass
        finally:
            for each in open_ends:
                each.transport.abort()

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, waits: bool = False) -> None:
        while True:
            if waits:
                await self.may_read.wait()
            data = await source.read(4096)
            if not data:
                break
            sink.write(data)
            await sink.drain()
        sink.write_eof()


async def test_without_acks_the_buffers_memory_is_kept_and_close_waits_for_the_broker(fake_broker: Any) -> None:
    memory, value = 2**20, b"v" * 50_000
    async with SlowReader(fake_broker) as slow:
        options: dict[str, Any] = {"acks": 0, "buffer_memory": memory, "max_block_ms": 100}
        producer = Producer(f"127.0.0.1:{slow.port}", **options)
        await producer.start()
        await producer.send_and_wait("topic", b"first")
        slow.may_read.clear()
        (link,) = producer._pool._links.values()  # type: ignore[union-attr]
        handed_over, held = 1, 0
        while not held:  # on a busy machine nothing may be written within max.block.ms
            with pytest.raises(BufferExhausted):
                while handed_over < 2000:
                    await producer.send("topic", value)
                    handed_over += 1
            held = link.connection._transport.get_write_buffer_size()  # type: ignore[union-attr]
        assert held <= memory
        slow.may_read.set()
        async with asyncio.timeout(SURELY_SECONDS):
            await producer.close()
    assert len(fake_broker.records()) == handed_over


def test_without_acks_a_broker_that_does_not_read_is_given_up() -> None:
    async def main() -> None:
        broker = FakeBroker()
        await broker.start()
        async with SlowReader(broker) as slow:
            options: dict[str, Any] = {"request_timeout_ms": 50, "delivery_timeout_ms": 100, "acks": 0, "linger_ms": 0}
            producer = Producer(f"127.0.0.1:{slow.port}", max_request_size=20_000_000, **options)
            await producer.start()
            await producer.send_and_wait("topic", b"first")
            slow.may_read.clear()
            with pytest.raises(DeliveryTimeout, match="does not read"):
                await producer.send_and_wait("topic", bytes(10_000_000))
            await producer.close(timeout_s=0.1)
        await broker.stop()

    run_virtually(main())


async def test_close_sends_pending_records(fake_broker: Any) -> None:
    producer = Producer(fake_broker.address, linger_ms=60_000, delivery_timeout_ms=120_000)
    await producer.start()
    future = await producer.send("topic", b"v")
    await producer.close()
    await producer.close()
    assert future.result().offset == 0
    with pytest.raises(ClientClosed):
        await producer.send("topic", b"v")
    await producer.flush()


async def test_close_with_a_short_timeout_fails_the_rest(fake_broker: Any) -> None:
    fake_broker.handlers[ProduceRequest] = lambda request: None
    producer = Producer(fake_broker.address, buffer_memory=200, batch_size=200, linger_ms=0)
    await producer.start()
    future = await producer.send("topic", b"v")
    waiting = asyncio.ensure_future(producer.send("topic", b"x" * 80))
    flushing = asyncio.ensure_future(producer.flush())
    await asyncio.sleep(0.01)
    await producer.close(timeout_s=0.01)
    for pending in (future, waiting):
        with pytest.raises(ClientClosed):
            await pending
    await flushing


async def test_unawaited_failures_cause_no_warning(fake_broker: Any) -> None:
    fake_broker.handlers[ProduceRequest] = lambda request: fake_broker.produced(request, lambda *_: (29, -1))
    async with Producer(fake_broker.address) as producer:
        await producer.send("topic", b"v")


async def test_a_send_that_is_cancelled_leaves_the_producer_whole(fake_broker: Any) -> None:
    gate = asyncio.Event()

    async def produce(request: Any) -> Any:
        await gate.wait()
        return fake_broker.on_produce(request)

    fake_broker.handlers[ProduceRequest] = produce
    async with Producer(fake_broker.address, buffer_memory=200, batch_size=200, linger_ms=0) as producer:
        first = await producer.send("topic", b"a" * 80)
        cancelled = asyncio.ensure_future(producer.send("topic", b"b" * 80))
        flush = asyncio.ensure_future(producer.flush())
        await asyncio.sleep(0.005)
        cancelled.cancel()
        flush.cancel()
        await asyncio.wait([cancelled, flush])
        gate.set()
        await first
        await producer.send_and_wait("topic", b"c" * 80)
    assert [record.value[:1] for record in fake_broker.records()] == [b"a", b"c"]


async def test_a_producer_without_any_broker_fails_in_time(fast: dict[str, int]) -> None:
    producer = Producer("127.0.0.1:1", **fast)
    with pytest.raises(ConnectionFailed, match="no broker can be reached"):
        await producer.start()
    with pytest.raises(ClientClosed):
        await producer.send("topic", b"v")


def test_options_are_checked_before_anything_else() -> None:
    with pytest.raises(ConfigError, match="acks=3"):
        Producer("h:1", acks=3)


async def test_a_producer_that_was_not_started_says_so() -> None:
    producer = Producer("h:1")
    with pytest.raises(ClientClosed, match=r"^the producer is not started$"):
        await producer.send("topic", b"v")
    await producer.close()
