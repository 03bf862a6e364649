"""Uses library clients as load generators: each does the same work, in batches and one record at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

Run = Callable[[str, str, int, int, bool], Awaitable[None]]
"""A function that produces records, or consumes the records that were produced with the same arguments. Its arguments
are the address, the topic, the number of records, the bytes of each record, and whether the records are sent in
batches.
"""

BATCH_BYTES: Final = 65_536
LINGER_MS: Final = 5
TIMEOUT_SECONDS: Final = 120.0


@dataclass(frozen=True)
class Library:
    name: str
    produce: Run
    consume: Run


async def oncelog_produce(address: str, topic: str, count: int, size: int, batched: bool) -> None:
    from oncelog import Producer

    value = b"x" * size
    async with Producer(address, batch_size=BATCH_BYTES, linger_ms=LINGER_MS if batched else 0) as producer:
        if not batched:
            for _ in range(count):
                await producer.send_and_wait(topic, value)
            return
        futures = [await producer.send(topic, value) for _ in range(count)]
        await producer.flush()
        assert all(future.done() and future.exception() is None for future in futures)


async def oncelog_consume(address: str, topic: str, count: int, size: int, batched: bool) -> None:
    from oncelog import Consumer, TopicPartition

    async with Consumer(address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        seen = 0
        while seen < count:
            for records in (await consumer.poll(timeout_ms=1000, max_records=5000)).values():
                seen += len(records)


async def aiokafka_produce(address: str, topic: str, count: int, size: int, batched: bool) -> None:
    from aiokafka import AIOKafkaProducer

    value = b"x" * size
    producer = AIOKafkaProducer(
        bootstrap_servers=address, max_batch_size=BATCH_BYTES, linger_ms=LINGER_MS if batched else 0, acks="all"
    )
    await producer.start()
    try:
        if not batched:
            for _ in range(count):
                await producer.send_and_wait(topic, value)
            return
        futures = [await producer.send(topic, value) for _ in range(count)]
        await producer.flush()
        assert all(future.done() and future.exception() is None for future in futures)
    finally:
        await producer.stop()


async def aiokafka_consume(address: str, topic: str, count: int, size: int, batched: bool) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest", max_poll_records=5000)
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        seen = 0
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                seen += len(records)
    finally:
        await consumer.stop()


async def librdkafka_produce(address: str, topic: str, count: int, size: int, batched: bool) -> None:
    await asyncio.to_thread(_librdkafka_produce, address, topic, count, size, batched)


def _librdkafka_produce(address: str, topic: str, count: int, size: int, batched: bool) -> None:
    from confluent_kafka import Producer

    value = b"x" * size
    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "batch.size": BATCH_BYTES,
            "linger.ms": LINGER_MS if batched else 0,
            "queue.buffering.max.messages": 1_000_000,
            "acks": "all",
        }
    )

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    for _ in range(count):
        producer.produce(topic, value, on_delivery=delivered)
        if not batched:
            producer.flush(TIMEOUT_SECONDS)
        else:
            producer.poll(0)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    assert not failed


async def librdkafka_consume(address: str, topic: str, count: int, size: int, batched: bool) -> None:
    await asyncio.to_thread(_librdkafka_consume, address, topic, count)


def _librdkafka_consume(address: str, topic: str, count: int) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    seen = 0
    while seen < count:
        seen += len(consumer.consume(5000, 1.0))
    consumer.close()


LIBRARIES: Final = (
    Library("oncelog", oncelog_produce, oncelog_consume),
    Library("aiokafka", aiokafka_produce, aiokafka_consume),
    Library("confluent-kafka", librdkafka_produce, librdkafka_consume),
)
