"""`send_columns` creates the same records as a `send` for each row, and returns one future for all rows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.fake_transactions import FakeCoordinator
from tests.support.transactional_producers import P0, started

from oncelog import Producer
from oncelog.errors import ErrorCode, InvalidTransactionState, KafkaError, StaleMetadata
from oncelog.producer.batch import ProducerBatch
from oncelog.producer.column_waiter import ColumnWaiter
from oncelog.producer.record_metadata import RecordMetadata
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.records.builder import RecordBatchBuilder

KEYS = [None if number % 3 else b"k%d" % number for number in range(500)]
VALUES = [None if number % 7 == 0 else b"v" * number for number in range(500)]
TIMES = [1000 + number for number in range(500)]
HEADERS: list[Any] = [[("h", b"%d" % number)] if number % 2 else () for number in range(500)]


def written(broker: Any) -> list[tuple[int, bytes | None, bytes | None, list[Any]]]:
    def as_bytes(data: Any) -> bytes | None:
        return None if data is None else bytes(data)

    return [
        (record.timestamp, as_bytes(record.key), as_bytes(record.value), list(record.headers))
        for record in broker.records()
    ]


async def test_columns_are_written_as_sends_would_be(fake_broker: Any) -> None:
    async with Producer(fake_broker.address, batch_size=2000) as producer:
        future = await producer.send_columns("topic", 0, VALUES, KEYS, timestamps_ms=TIMES, headers=HEADERS)
        await producer.flush()
        assert (await future)[:3] == ("topic", 0, 0)
        by_columns = written(fake_broker)
        for key, value, timestamp_ms, headers in zip(KEYS, VALUES, TIMES, HEADERS, strict=True):
            await producer.send("topic", value, key, partition=0, timestamp_ms=timestamp_ms, headers=headers)
        await producer.flush()
        assert written(fake_broker)[len(by_columns) :] == by_columns
        one = await producer.send_columns("topic", 0, [b"v"])
        await producer.flush()
        assert (await one).offset == 1000


@pytest.mark.parametrize(("second", "first"), [(7, 5), (7, -1), (-1, 5)])
async def test_the_metadata_are_the_first_records_whichever_batch_is_acknowledged_first(
    second: int, first: int
) -> None:
    """The second batch may be acknowledged first, for example if the response to the first batch is lost and its leader
    has moved. A broker that recognises a duplicate but does not know the batch's offset responds with offset -1.
    """
    future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
    waiter = ColumnWaiter(future, 4)
    for offset in (second, first):
        batch = ProducerBatch("topic", 0, (1,), RecordBatchBuilder(1000), 0.0, 1.0)
        assert batch.append(1000, None, b"a", (), waiter)
        assert batch.extend(1000, None, [b"b"], waiter) == 1
        batch.acknowledge(offset)
    assert (await future).offset == min(second, first)


@pytest.mark.parametrize("keys", [None, [b"k" * (number % 5) for number in range(3000)]], ids=["values", "keys"])
async def test_plain_columns_are_packed_as_sends_would_be(fake_broker: Any, keys: list[bytes] | None) -> None:
    """Many rows of plain bytes fill several batches. Single records are sent before and after the rows, and a later
    piece of rows has a null.
    """
    values: list[bytes | None] = [b"v" * (number % 90) for number in range(3000)]
    values[2500] = None
    async with Producer(fake_broker.address, batch_size=3000, linger_ms=1000) as producer:
        before = await producer.send("topic", b"before", partition=0)
        future = await producer.send_columns("topic", 0, values, keys)
        after = await producer.send("topic", b"after", partition=0)
        await producer.flush()
        offsets = [(await each).offset for each in (before, future, after)]
    assert offsets == [0, 1, 3001]
    found = [(key, value) for _, key, value, _ in written(fake_broker)]
    expected = list(zip([None] * 3000 if keys is None else keys, values, strict=True))
    assert found == [(None, b"before"), *expected, (None, b"after")]


@pytest.mark.parametrize("values", [[b"v"] * 3, [b"v", None, b"v"]])
async def test_columns_get_their_time_once_their_topic_is_known(
    fake_broker: Any, monkeypatch: pytest.MonkeyPatch, values: list[bytes | None]
) -> None:
    """The call may wait a minute for the topic's metadata, just as `send` may."""
    time_ms = 1_000
    async with Producer(fake_broker.address) as producer:
        route_of = producer._route

        async def late(*where: Any) -> Any:
            nonlocal time_ms
            time_ms = 61_000
            return await route_of(*where)

        monkeypatch.setattr(producer, "_route", late)
        monkeypatch.setattr("oncelog.producer.producer.now_ms", lambda: time_ms)
        await producer.send_columns("topic", 0, values)
        await producer.flush()
    assert [timestamp for timestamp, *_ in written(fake_broker)] == [61_000] * 3


async def test_the_first_error_of_columns_is_raised_for_all(fake_broker: Any) -> None:
    async with Producer(fake_broker.address, batch_size=200, linger_ms=1000) as producer:
        await producer.send_columns("topic", 0, [b"known"])
        await producer.flush()
        fake_broker.handlers[ProduceRequest] = lambda request: fake_broker.produced(
            request, lambda *_: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
        )
        future = await producer.send_columns("topic", 0, [b"v" * 50] * 20)
        await producer.flush()
        with pytest.raises(KafkaError) as caught:
            await future
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_an_unsupported_column_is_refused(fake_broker: Any) -> None:
    async with Producer(fake_broker.address) as producer:
        for columns in ({"keys": [b"k"]}, {"timestamps_ms": [1]}, {"headers": [()]}):
            with pytest.raises(ValueError, match="1 for 2 values"):
                await producer.send_columns("topic", 0, [b"v", b"w"], **columns)
        with pytest.raises(ValueError, match="at least one"):
            await producer.send_columns("topic", 0, [])
        with pytest.raises(ValueError, match="timestamp -1"):
            await producer.send_columns("topic", 0, [b"v"], timestamps_ms=[-1])
        with pytest.raises(StaleMetadata):
            await producer.send_columns("topic", 9, [b"v"])


async def test_columns_are_part_of_a_transaction(coordinator: FakeCoordinator) -> None:
    async with started(coordinator, batch_size=500) as producer:
        with pytest.raises(InvalidTransactionState):
            await producer.send_columns("topic", 0, [b"v"])
        for commits in (True, False):
            producer.begin_transaction()
            await producer.send_columns("topic", 0, [b"%d" % number for number in range(100)])
            await producer.flush()
            await (producer.commit_transaction() if commits else producer.abort_transaction())
    assert coordinator.committed == {P0: [b"%d" % number for number in range(100)]}


async def test_columns_wait_for_memory_and_a_cancelled_send_releases_it(fake_broker: Any) -> None:
    hold = asyncio.Event()
    produce = fake_broker.on_produce

    async def held(request: Any) -> Any:
        await hold.wait()
        return produce(request)

    fake_broker.handlers[ProduceRequest] = held
    async with Producer(fake_broker.address, batch_size=1000, buffer_memory=4000, linger_ms=0) as producer:
        sending = asyncio.ensure_future(producer.send_columns("topic", 0, [b"v" * 100] * 100))
        await fake_broker.received(ProduceRequest, 1)
        assert not sending.done()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        hold.set()
        future = await producer.send_columns("topic", 0, [b"w" * 100] * 100)
        await producer.flush()
        await future
