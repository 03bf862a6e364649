"""Tests oncelog's own client against a live broker process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from oncelog import Admin, Consumer, ConsumerRecord, NewTopic, Producer, TopicPartition
from oncelog.admin.resources import AlterConfig, ConfigResource
from oncelog.errors import InvalidTopic, MessageTooLarge, OffsetOutOfRange, TopicAlreadyExists
from oncelog.metadata.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

TIMEOUT_MS = 20_000


async def create(broker: Any, topic: str, partitions: int = 1, **configs: str) -> None:
    async with Admin(broker.address) as admin:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        await admin.create_topics([NewTopic(topic, partitions, 1, configs=named)])
        # Apache Kafka elects leaders a moment after it has created a topic; a client would retry batches that were
        # refused before the election out of order.
        await admin.list_offsets({TopicPartition(topic, index): LATEST_TIMESTAMP for index in range(partitions)})


async def read(broker: Any, topic: str, count: int, partitions: int = 1, **options: Any) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    async with Consumer(broker.address, auto_offset_reset="earliest", **options) as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            while len(records) < count:
                for part in (await consumer.poll(timeout_ms=TIMEOUT_MS)).values():
                    records += part
    assert len(records) == count
    return records


@pytest.mark.parametrize("acks", ["all", 1])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_sent_records_are_read_back(broker: Any, topic: str, compression: str, acks: Any) -> None:
    await create(broker, topic)
    async with Producer(broker.address, compression_type=compression, acks=acks, batch_size=1000) as producer:
        futures = [
            await producer.send(topic, b"value-%d" % number, key=b"%d" % number, headers=[("n", b"%d" % number)])
            for number in range(200)
        ]
        await producer.flush()
    assert [future.result().offset for future in futures] == list(range(200))
    records = await read(broker, topic, 200)
    assert [record.offset for record in records] == list(range(200))
    assert [record.value for record in records] == [b"value-%d" % number for number in range(200)]
    assert records[7].key == b"7"
    assert list(records[7].headers) == [("n", b"7")]
    assert [record.timestamp_ms for record in records] == [future.result().timestamp_ms for future in futures]


async def test_nulls_and_empty_values_are_kept_apart(broker: Any, topic: str) -> None:
    await create(broker, topic)
    async with Producer(broker.address) as producer:
        await producer.send(topic, None, key=b"tombstone")
        await producer.send(topic, b"")
        await producer.send_and_wait(topic, b"v", key=b"", headers=[("h", None), ("h", b"")])
    first, second, third = await read(broker, topic, 3)
    assert (first.key, first.value) == (b"tombstone", None)
    assert (second.key, second.value, list(second.headers)) == (None, b"", [])
    assert (third.key, list(third.headers)) == (b"", [("h", None), ("h", b"")])


async def test_order_is_kept_in_each_partition(broker: Any, topic: str) -> None:
    await create(broker, topic, partitions=3)
    async with Producer(broker.address, batch_size=500) as producer:
        for number in range(600):
            await producer.send(topic, b"%d" % number, key=b"key-%d" % (number % 7))
    records = await read(broker, topic, 600, partitions=3, max_poll_records=50)
    for partition in range(3):
        numbers = [int(record.value or b"") for record in records if record.partition == partition]
        assert numbers == sorted(numbers)
    assert {int(record.value or b"") for record in records} == set(range(600))


async def test_records_are_sent_without_acks(broker: Any, topic: str) -> None:
    await create(broker, topic)
    async with Producer(broker.address, acks=0) as producer:
        assert (await producer.send_and_wait(topic, b"v")).offset == -1
    assert [record.value for record in await read(broker, topic, 1)] == [b"v"]


async def test_a_topic_may_come_to_be_by_use(broker: Any, topic: str) -> None:
    async with Producer(broker.address) as producer:
        assert (await producer.send_and_wait(topic, b"v")).topic == topic
    assert len(await read(broker, topic, 1)) == 1


async def test_the_log_append_time_is_used_where_the_topic_says_so(broker: Any, topic: str) -> None:
    await create(broker, topic, message_timestamp_type="LogAppendTime")
    async with Producer(broker.address) as producer:
        metadata = await producer.send_and_wait(topic, b"v", timestamp_ms=1)
    (record,) = await read(broker, topic, 1)
    assert record.timestamp_ms == metadata.timestamp_ms > 1_600_000_000_000
    assert record.timestamp_type == 1


async def test_batches_too_large_for_the_topic_are_split(broker: Any, topic: str) -> None:
    await create(broker, topic, max_message_bytes="600")
    async with Producer(broker.address, batch_size=8000) as producer:
        futures = [await producer.send(topic, b"%03d" % number * 20) for number in range(100)]
        await producer.flush()
        assert [future.result().offset for future in futures] == list(range(100))
        with pytest.raises(MessageTooLarge):
            await producer.send_and_wait(topic, b"x" * 2000)
    assert [record.value for record in await read(broker, topic, 100)] == [b"%03d" % n * 20 for n in range(100)]


async def test_positions_and_offsets_are_reported(broker: Any, topic: str) -> None:
    await create(broker, topic)
    here = TopicPartition(topic, 0)
    async with Producer(broker.address) as producer:
        for number in range(10):
            await producer.send_and_wait(topic, b"%d" % number, timestamp_ms=1000 * (number + 1))
    async with Consumer(broker.address, auto_offset_reset="none") as consumer:
        consumer.assign([here])
        assert await consumer.beginning_offsets([here]) == {here: 0}
        assert await consumer.end_offsets([here]) == {here: 10}
        found = (await consumer.offsets_for_times({here: 3500}))[here]
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (3, 4000)
        assert await consumer.offsets_for_times({here: 99_000}) == {here: None}
        consumer.seek(here, found.offset)
        async for record in consumer:
            assert record.value == b"3"
            break
        assert await consumer.position(here) == 4
        consumer.seek(here, 11)
        with pytest.raises(OffsetOutOfRange):
            await consumer.poll(timeout_ms=TIMEOUT_MS)


async def test_a_waiting_consumer_gets_new_records(broker: Any, topic: str) -> None:
    await create(broker, topic)
    async with Producer(broker.address, linger_ms=0) as producer, Consumer(broker.address) as consumer:
        here = TopicPartition(topic, 0)
        consumer.assign([here])
        assert await consumer.position(here) == 0
        polling = asyncio.ensure_future(consumer.poll(timeout_ms=TIMEOUT_MS))
        await asyncio.sleep(0)
        await producer.send_and_wait(topic, b"v")
        assert [record.value for record in (await polling)[here]] == [b"v"]


async def test_the_admin_client_administers_topics(broker: Any, topic: str) -> None:
    resource, here = ConfigResource.topic(topic), TopicPartition(topic, 0)
    async with Admin(broker.address) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1)], validate_only=True)
        assert topic not in await admin.list_topics()
        await admin.create_topics([NewTopic(topic, 2, 1, configs={"retention.ms": "1000000"})])
        with pytest.raises(TopicAlreadyExists):
            await admin.create_topics([NewTopic(topic, 2, 1)])
        with pytest.raises(InvalidTopic):
            await admin.create_topics([NewTopic("no/slash", 1, 1)])
        await admin.create_partitions({topic: 3})

        async def partitions() -> list[int]:
            return sorted((await admin.describe_topics([topic]))[topic].partitions)

        async def configs() -> tuple[str | None, str | None]:
            found = (await admin.describe_configs([resource]))[resource]
            return found["retention.ms"].value, found["max.message.bytes"].value

        await answered(partitions, [0, 1, 2])
        _, default = await configs()
        await admin.incremental_alter_configs({resource: [AlterConfig("max.message.bytes", "5000")]})
        await answered(configs, ("1000000", "5000"))
        await admin.alter_configs({resource: {"retention.ms": "2000000"}})
        await answered(configs, ("2000000", default))
        async with Producer(broker.address) as producer:
            for _ in range(5):
                await producer.send(topic, b"v", partition=0)
        assert await admin.delete_records({here: 3}) == {here: 3}
        assert (await admin.list_offsets({here: EARLIEST_TIMESTAMP}))[here].offset == 3
        assert (await admin.list_offsets({here: LATEST_TIMESTAMP}))[here].offset == 5
        assert len((await admin.describe_cluster()).brokers) == 1
        await admin.delete_topics([topic])

        async def is_there() -> bool:
            return topic in await admin.list_topics()

        await answered(is_there, False)


async def answered(ask: Callable[[], Awaitable[object]], wanted: object) -> None:
    """Wait until `ask` returns `wanted`, because in KRaft a broker may learn of a change some time after the controller
    has made it.
    """
    found: object = None
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            while (found := await ask()) != wanted:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{found}, never {wanted}") from None


async def test_a_broker_killed_and_started_again_loses_nothing_acknowledged(
    broker_factory: Callable[[], Any], topic: str
) -> None:
    broker = broker_factory()
    broker.start()
    await create(broker, topic)
    async with Producer(broker.address, retry_backoff_ms=20) as producer:
        before = [await producer.send_and_wait(topic, b"before-%d" % number) for number in range(20)]
        await asyncio.to_thread(broker.kill)
        waiting = [await producer.send(topic, b"after-%d" % number) for number in range(20)]
        await asyncio.to_thread(broker.start)
        after = [await future for future in waiting]
    acknowledged = {metadata.offset: b"before-%d" % number for number, metadata in enumerate(before)}
    acknowledged |= {metadata.offset: b"after-%d" % number for number, metadata in enumerate(after)}
    records = {record.offset: record.value for record in await read(broker, topic, 40)}
    assert records == acknowledged
