"""Library clients in transactions of one record, one after another, until the commit is acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from transaction_clients import CLOCK, TIMEOUT_SECONDS, Produced

WARM_UP: Final = 10
"""Transactions before the measured ones."""


async def oncelog_transactions(address: str, topic: str, record_bytes: int, count: int) -> Produced:
    from oncelog import Producer

    value = b"v" * record_bytes
    async with Producer(address, transactional_id=f"oncelog-{topic}", linger_ms=0) as producer:

        async def transaction() -> None:
            async with producer.transaction():
                await producer.send(topic, value)

        return await _repeated(transaction, count)


async def aiokafka_transactions(address: str, topic: str, record_bytes: int, count: int) -> Produced:
    from aiokafka import AIOKafkaProducer

    value = b"v" * record_bytes
    producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=f"aiokafka-{topic}", linger_ms=0)
    async with producer:

        async def transaction() -> None:
            async with producer.transaction():
                await producer.send(topic, value)

        return await _repeated(transaction, count)


async def _repeated(transaction: Callable[[], Awaitable[None]], count: int) -> Produced:
    for _ in range(WARM_UP):
        await transaction()
    cpu, started = time.process_time(), CLOCK()
    for _ in range(count):
        await transaction()
    return Produced(count, CLOCK() - started, time.process_time() - cpu)


async def librdkafka_transactions(address: str, topic: str, record_bytes: int, count: int) -> Produced:
    return await asyncio.to_thread(librdkafka, address, topic, record_bytes, count)


def librdkafka(address: str, topic: str, record_bytes: int, count: int) -> Produced:
    from confluent_kafka import Producer

    value = b"v" * record_bytes
    options = {"bootstrap.servers": address, "linger.ms": 0, "transactional.id": f"librdkafka-{topic}"}
    producer = Producer(options)
    producer.init_transactions(TIMEOUT_SECONDS)

    def transaction() -> None:
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.commit_transaction(TIMEOUT_SECONDS)

    for _ in range(WARM_UP):
        transaction()
    cpu, started = time.process_time(), CLOCK()
    for _ in range(count):
        transaction()
    return Produced(count, CLOCK() - started, time.process_time() - cpu)
