"""A consumer skips no record when a deserializer fails or a poll is cancelled. The module also tests the consumer's
hooks and counters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.support.fake_broker import SURELY_SECONDS

from oncelog import Consumer, ConsumerInterceptor, TopicPartition
from oncelog.errors import ConfigError
from oncelog.serialization import (
    Deserializer,
    RecordDeserializationError,
    RegistryUnavailable,
    SerializationContext,
    SerializationError,
    StringDeserializer,
)
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

T = TopicPartition("topic", 0)


class Numbers(Deserializer[int]):
    """Deserializes digits to a number. Values in `bad` raise an exception; if `gate` is set, deserializing each value
    waits for that event.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.waiting = asyncio.Event()

    async def deserialize(self, data: bytes, context: SerializationContext) -> int:
        assert (context.topic, context.is_key) == ("topic", False)
        if self.gate is not None:
            self.waiting.set()
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        try:
            return int(data)
        except ValueError:
            raise SerializationError(f"{data!r} is not a number") from None


def fill(broker: Any, *values: bytes | None) -> None:
    broker.append(build_batch([Record(0, 1, b"k", value, []) for value in values]))


def consumer_of(broker: Any, deserializer: Numbers, **options: Any) -> Consumer[str, int]:
    consumer = Consumer(
        broker.address,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=20,
        key_deserializer=StringDeserializer(),
        value_deserializer=deserializer,
        **options,
    )
    consumer.assign([T])
    return consumer


async def polled(consumer: Consumer[str, int]) -> list[tuple[int, str | None, int | None]]:
    async with asyncio.timeout(SURELY_SECONDS):
        while not (found := await consumer.poll(1000)):
            pass
    return [(record.offset, record.key, record.value) for records in found.values() for record in records]


async def test_keys_and_values_are_deserialized_and_a_tombstone_stays_none(fake_broker: Any) -> None:
    fill(fake_broker, b"1", None)
    async with consumer_of(fake_broker, Numbers()) as consumer:
        assert await polled(consumer) == [(0, "k", 1), (1, "k", None)]


async def test_records_before_a_bad_one_are_returned_and_the_next_poll_raises_it(fake_broker: Any) -> None:
    fill(fake_broker, b"1", b"2", b"x", b"4")
    async with consumer_of(fake_broker, Numbers()) as consumer:
        assert await polled(consumer) == [(0, "k", 1), (1, "k", 2)]
        for _ in range(2):
            with pytest.raises(RecordDeserializationError, match=r"topic-0, offset 2: b'x' is not a number") as raised:
                await polled(consumer)
            assert raised.value.record.value == b"x"
            assert await consumer.position(T) == 2
        consumer.seek(T, raised.value.record.offset + 1)
        assert await polled(consumer) == [(3, "k", 4)]


async def test_iteration_stays_at_a_bad_record_until_it_is_left_out(fake_broker: Any) -> None:
    fill(fake_broker, b"1", b"x", b"3")
    async with consumer_of(fake_broker, Numbers()) as consumer:
        assert (await anext(consumer)).value == 1
        for _ in range(2):
            with pytest.raises(RecordDeserializationError, match="offset 1"):
                await anext(consumer)
        consumer.seek(T, 2)
        assert (await anext(consumer)).value == 3


async def test_a_registry_that_does_not_answer_passes_over_nothing(fake_broker: Any) -> None:
    fill(fake_broker, b"1")
    numbers = Numbers()
    numbers.error = RegistryUnavailable("down")
    async with consumer_of(fake_broker, numbers) as consumer:
        with pytest.raises(RegistryUnavailable):
            await polled(consumer)
        numbers.error = None
        assert await polled(consumer) == [(0, "k", 1)]


async def test_a_poll_that_is_cancelled_while_it_deserializes_has_read_nothing(fake_broker: Any) -> None:
    fill(fake_broker, b"1", b"2")
    numbers = Numbers()
    numbers.gate = asyncio.Event()
    async with consumer_of(fake_broker, numbers) as consumer:
        for read in (lambda: consumer.poll(1000), lambda: anext(consumer)):
            numbers.waiting.clear()
            poll = asyncio.ensure_future(read())
            await numbers.waiting.wait()
            assert consumer.consumed()[T].offset == 0, "a commit meanwhile must not cover what nobody has seen"
            with pytest.raises(RuntimeError, match="another task"):
                await consumer.poll()
            poll.cancel()
            with pytest.raises(asyncio.CancelledError):
                await poll
            assert consumer.consumed()[T].offset == 0
        numbers.gate.set()
        assert await polled(consumer) == [(0, "k", 1), (1, "k", 2)]
        assert consumer.consumed()[T].offset == 2


async def test_a_commit_while_records_are_deserialized_covers_what_a_seek_of_this_poll_passed_over(
    fake_broker: Any,
) -> None:
    fill(fake_broker, b"1", b"2", b"3")
    numbers = Numbers()
    numbers.gate = asyncio.Event()
    async with consumer_of(fake_broker, numbers) as consumer:
        consumer.pause(T)
        poll = asyncio.ensure_future(consumer.poll(10_000))
        for _ in range(3):  # the poll has begun, but the partition has no position yet
            await asyncio.sleep(0)
        consumer.seek(T, 2)
        consumer.resume(T)
        async with asyncio.timeout(SURELY_SECONDS):
            await numbers.waiting.wait()
        assert consumer.consumed()[T].offset == 2
        numbers.gate.set()
        assert [record.offset for record in (await poll)[T]] == [2]


@pytest.mark.parametrize("is_iterated", [False, True], ids=["poll", "iteration"])
async def test_a_seek_while_records_are_deserialized_counts_though_they_fail(
    fake_broker: Any, is_iterated: bool
) -> None:
    fill(fake_broker, b"1", b"2", b"3")
    numbers = Numbers()
    numbers.gate = asyncio.Event()
    async with consumer_of(fake_broker, numbers) as consumer:
        reading = asyncio.ensure_future(anext(consumer) if is_iterated else consumer.poll(10_000))
        async with asyncio.timeout(SURELY_SECONDS):
            await numbers.waiting.wait()
        consumer.seek(T, 2)
        assert consumer.consumed()[T].offset == 2
        numbers.error = SerializationError("bad")
        numbers.gate.set()
        with pytest.raises(RecordDeserializationError):
            await reading
        assert consumer.consumed()[T].offset == 2


async def test_a_partition_that_is_assigned_anew_while_its_records_fail_keeps_its_new_position(
    fake_broker: Any,
) -> None:
    fill(fake_broker, b"1", b"2", b"3")
    numbers = Numbers()
    numbers.gate = asyncio.Event()
    async with consumer_of(fake_broker, numbers) as consumer:
        poll = asyncio.ensure_future(consumer.poll(10_000))
        async with asyncio.timeout(SURELY_SECONDS):
            await numbers.waiting.wait()
        consumer.assign([])
        consumer.assign([T])
        assert T not in consumer.consumed(), "a commit would store the offset of the assignment before"
        numbers.error = SerializationError("bad")
        numbers.gate.set()
        with pytest.raises(RecordDeserializationError):
            await poll
        assert T not in consumer.consumed(), "its start is looked up, as for each new partition"


async def test_a_single_record_can_be_polled(fake_broker: Any) -> None:
    fill(fake_broker, b"1", b"2")
    async with consumer_of(fake_broker, Numbers()) as consumer:
        first, second = await consumer.poll_one(5000), await consumer.poll_one(5000)
        assert (first and first.value, second and second.value) == (1, 2)
        assert await consumer.poll_one() is None


async def test_the_ends_of_the_log_and_the_counters_are_shown(fake_broker: Any) -> None:
    fill(fake_broker, b"1", b"2")
    async with consumer_of(fake_broker, Numbers()) as consumer:
        assert (consumer.highwater(T), consumer.last_stable_offset(T)) == (None, None)
        await consumer.poll_one(5000)
        assert (consumer.highwater(T), consumer.last_stable_offset(T)) == (2, 2)
        metrics = consumer.metrics()
        assert (metrics["records-consumed-total"], metrics["records-lag-max"], metrics["assigned-partitions"]) == (
            1,
            1,
            1,
        )
        assert metrics["fetch-total"] >= 1
        assert metrics["bytes-consumed-total"] > 50
        assert metrics["connection-count"] >= 1
        assert (consumer.assignment(), consumer.subscription(), consumer.paused()) == ({T}, frozenset(), set())


class Hook(ConsumerInterceptor):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_records(self, records: Sequence[Any]) -> None:
        self.seen += [record.value for record in records]
        raise RuntimeError("a hook that fails")

    def on_commit(self, offsets: Mapping[Any, Any]) -> None:
        self.seen.append({partition: told.offset for partition, told in offsets.items()})


async def test_interceptors_see_records_whether_polled_or_iterated_and_may_fail(
    fake_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fill(fake_broker, b"1", b"2")
    hook = Hook()
    with caplog.at_level(logging.ERROR, "oncelog"):
        async with consumer_of(fake_broker, Numbers(), interceptors=[hook]) as consumer:
            await consumer.poll_one(5000)
            await anext(consumer)
    assert hook.seen == [1, 2]
    assert "an interceptor has failed: Hook" in caplog.text


@pytest.mark.parametrize(
    "options", [{"value_deserializer": bytes}, {"key_deserializer": StringDeserializer}, {"interceptors": [object()]}]
)
def test_what_is_no_deserializer_or_interceptor_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Consumer("127.0.0.1:9", **options)
