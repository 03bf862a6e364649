import asyncio
from typing import Any

import pytest

from oncelog.errors import (
    AuthorizationFailed,
    BufferExhausted,
    ClientClosed,
    ConfigError,
    ConnectionFailed,
    DeliveryTimeout,
    MessageTooLarge,
    RequestTimedOut,
    StaleMetadata,
)
from oncelog.producer.producer import Producer, RecordMetadata
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.produce import ProduceRequest


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


async def test_linger_gathers(fake_broker: Any) -> None:
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


async def test_without_acks_nobody_answers(fake_broker: Any) -> None:
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


async def test_what_nobody_acknowledges_in_time_fails(fake_broker: Any, fast: dict[str, int]) -> None:
    fake_broker.handlers[ProduceRequest] = lambda request: None
    async with Producer(
        fake_broker.address, **fast, request_timeout_ms=50, delivery_timeout_ms=500, linger_ms=0
    ) as producer:
        with pytest.raises(DeliveryTimeout, match="no answer to Produce"):
            await producer.send_and_wait("topic", b"v")
    assert len(fake_broker.requests_of(ProduceRequest)) >= 2


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


async def test_send_waits_for_room_and_gives_up_in_time(fake_broker: Any) -> None:
    gate = asyncio.Event()

    async def produce(request: Any) -> Any:
        await gate.wait()
        return fake_broker.on_produce(request)

    fake_broker.handlers[ProduceRequest] = produce
    async with Producer(
        fake_broker.address, buffer_memory=400, batch_size=200, max_block_ms=300, linger_ms=0
    ) as producer:
        await producer.send("topic", b"x" * 80)
        await producer.send("topic", b"x" * 80)
        with pytest.raises(BufferExhausted, match=r"no room within max\.block\.ms=300"):
            await producer.send("topic", b"y" * 80)
        waiting = [asyncio.ensure_future(producer.send("topic", b"%d" % number * 80)) for number in range(5)]
        await asyncio.sleep(0)
        gate.set()
        for sending in waiting:
            await (await sending)
    values = [record.value[:1] for record in fake_broker.records()]
    assert values == [b"x", b"x", b"0", b"1", b"2", b"3", b"4"]


async def test_a_topic_that_is_not_there(fake_broker: Any, fast: dict[str, int]) -> None:
    async with Producer(fake_broker.address, **fast, max_block_ms=300) as producer:
        with pytest.raises(RequestTimedOut, match=r"topic 'other': no metadata within 0\.3 s"):
            await producer.send("other", b"v")
        fake_broker.topics["other"] = 1
        await producer.send_and_wait("other", b"v")


async def test_a_partition_that_is_not_there_until_it_is(fake_broker: Any) -> None:
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


async def test_a_time_before_1970_is_refused(fake_broker: Any) -> None:
    async with Producer(fake_broker.address) as producer:
        with pytest.raises(ValueError, match="timestamp_ms=-1: must not be negative"):
            await producer.send("topic", b"v", timestamp_ms=-1)
    assert fake_broker.records() == []


async def test_close_sends_what_is_there(fake_broker: Any) -> None:
    producer = Producer(fake_broker.address, linger_ms=60_000, delivery_timeout_ms=120_000)
    await producer.start()
    future = await producer.send("topic", b"v")
    await producer.close()
    await producer.close()
    assert future.result().offset == 0
    with pytest.raises(ClientClosed):
        await producer.send("topic", b"v")
    await producer.flush()


async def test_close_in_a_hurry_fails_what_is_left(fake_broker: Any) -> None:
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


async def test_failures_that_nobody_looks_at_are_quiet(fake_broker: Any) -> None:
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


async def test_no_broker_at_all(fast: dict[str, int]) -> None:
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
