"""Runs library clients that produce as fast as they can for a limited time: plainly, idempotently, or in transactions
of 100 ms.

A client's CPU is that of all threads of this process, in which only the client runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

PLAIN, IDEMPOTENT, TRANSACTIONAL = "plain", "idempotent", "transactional"
KINDS: Final = (PLAIN, IDEMPOTENT, TRANSACTIONAL)
TRANSACTION_SECONDS: Final = 0.1
LOOK_EVERY: Final = 100
"""The number of records between two readings of the clock."""
LINGER_MS: Final = 5
IN_FLIGHT: Final = 5
"""The maximum number of requests in flight: the highest that idempotence allows, and the default of Kafka's own client.
It is set explicitly, because librdkafka has no such limit without idempotence.
"""
BUFFER_KILOBYTES: Final = 32_768
"""librdkafka's buffer in KB, set to Kafka's default. With a larger buffer, a transaction of 100 ms would end much
later, because the end waits until all buffered records are sent.
"""
TIMEOUT_SECONDS: Final = 60.0
CLOCK: Final = time.perf_counter


class Produced(NamedTuple):
    """The result of a run: the number of produced records, the elapsed seconds, and the client's CPU seconds."""

    records: int
    seconds: float
    client_cpu: float


class BatchSize(NamedTuple):
    """The size of a record, and the maximum size of a batch, in bytes."""

    record_bytes: int
    batch_bytes: int


class Way(NamedTuple):
    """Describes how to produce: which of KINDS, to which topic, and for how long."""

    kind: str
    address: str
    topic: str
    seconds: float
    batch: BatchSize


class Measured:
    """Counts records, time and CPU from its creation on."""

    def __init__(self, seconds: float) -> None:
        self.records = 0
        self._cpu, self._started = time.process_time(), CLOCK()
        self.ends_at = self._started + seconds

    def result(self) -> Produced:
        return Produced(self.records, CLOCK() - self._started, time.process_time() - self._cpu)


async def oncelog_produce(way: Way) -> Produced:
    from oncelog import Producer

    options: dict[str, Any] = {
        PLAIN: {"enable_idempotence": False},
        TRANSACTIONAL: {"transactional_id": way.topic},
    }.get(way.kind, {})
    producer = Producer(way.address, batch_size=way.batch.batch_bytes, linger_ms=LINGER_MS, **options)
    async with producer:
        await producer.send_and_wait(way.topic, b"") if way.kind != TRANSACTIONAL else None
        return await _produce(way, producer, producer.transaction)


async def aiokafka_produce(way: Way) -> Produced:
    from aiokafka import AIOKafkaProducer

    options: dict[str, Any] = {
        PLAIN: {},
        IDEMPOTENT: {"enable_idempotence": True},
        TRANSACTIONAL: {"transactional_id": way.topic},
    }[way.kind]
    producer = AIOKafkaProducer(
        bootstrap_servers=way.address, max_batch_size=way.batch.batch_bytes, linger_ms=LINGER_MS, acks="all", **options
    )
    async with producer:
        await producer.send_and_wait(way.topic, b"") if way.kind != TRANSACTIONAL else None
        return await _produce(way, producer, producer.transaction)


async def _produce(way: Way, producer: Any, transaction: Callable[[], Any]) -> Produced:
    """Produce with an asyncio client; both asyncio clients have the same methods."""
    value, topic, send = b"v" * way.batch.record_bytes, way.topic, producer.send
    measured = Measured(way.seconds)
    while CLOCK() < measured.ends_at:
        if way.kind == TRANSACTIONAL:
            async with transaction():
                await _send_until(measured, CLOCK() + TRANSACTION_SECONDS, send, topic, value)
        else:
            last = await _send_until(measured, measured.ends_at, send, topic, value)
            await producer.flush()
            await last
    return measured.result()


async def _send_until(measured: Measured, until: float, send: Any, topic: str, value: bytes) -> asyncio.Future[Any]:
    """Send records until this time, and return the future of the last record."""
    while True:
        for _ in range(LOOK_EVERY):
            future: asyncio.Future[Any] = await send(topic, value)
        measured.records += LOOK_EVERY
        if CLOCK() > until:
            return future


async def librdkafka_produce(way: Way) -> Produced:
    return await asyncio.to_thread(_librdkafka_produce, way)


def _librdkafka_produce(way: Way) -> Produced:
    from confluent_kafka import Producer

    options: dict[str, Any] = {
        PLAIN: {},
        IDEMPOTENT: {"enable.idempotence": True},
        TRANSACTIONAL: {"transactional.id": way.topic},
    }[way.kind]
    failed: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": way.address,
            "batch.size": way.batch.batch_bytes,
            "linger.ms": LINGER_MS,
            "acks": "all",
            "max.in.flight.requests.per.connection": IN_FLIGHT,
            "queue.buffering.max.kbytes": BUFFER_KILOBYTES,
            "queue.buffering.max.messages": 1_000_000,
            "on_delivery": delivered,
            **options,
        }
    )
    value, topic = b"v" * way.batch.record_bytes, way.topic
    is_transactional = way.kind == TRANSACTIONAL
    if is_transactional:
        producer.init_transactions(TIMEOUT_SECONDS)
    else:
        producer.produce(topic, b"")
        producer.flush(TIMEOUT_SECONDS)
    measured = Measured(way.seconds)
    while CLOCK() < measured.ends_at:
        until = measured.ends_at
        if is_transactional:
            producer.begin_transaction()
            until = CLOCK() + TRANSACTION_SECONDS
        while CLOCK() < until:
            for _ in range(LOOK_EVERY):
                _librdkafka_send(producer, topic, value)
            measured.records += LOOK_EVERY
            producer.poll(0)
        if is_transactional:
            producer.commit_transaction(TIMEOUT_SECONDS)
        elif producer.flush(TIMEOUT_SECONDS):
            raise RuntimeError("records were not acknowledged")
    if failed:
        raise RuntimeError(f"{len(failed)} records were not produced: {failed[0]}")
    return measured.result()


def _librdkafka_send(producer: Any, topic: str, value: bytes) -> None:
    while True:
        try:
            return producer.produce(topic, value)
        except BufferError:  # librdkafka's queue is full: let it send, then try again
            producer.poll(0.01)


PRODUCE: Final[dict[str, Callable[[Way], Awaitable[Produced]]]] = {
    "oncelog": oncelog_produce,
    "aiokafka": aiokafka_produce,
    "confluent-kafka": librdkafka_produce,
}
