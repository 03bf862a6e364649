"""Tests clients while SIGSTOP pauses one of three brokers: this broker accepts connections, but does not respond (E54).

Each broker leads a partition without other replicas. Requests for the partitions of the other brokers do not wait for
the paused broker.
"""

from __future__ import annotations

import asyncio
import time
from itertools import islice

import pytest
from replicated_cluster import ReplicatedCluster

from oncelog import Consumer, Producer, TopicPartition
from oncelog.connection.pool import HANGING_S

STEPS = 2
"""How many times in succession a client may have to notice that a broker hangs: once while connecting, and once for a
request.
"""
LIMIT_S = STEPS * HANGING_S + 30
"""A limit in seconds that also a busy machine keeps, and that is much less than TIMEOUT_MS."""
TIMEOUT_MS = 60_000
PATIENT = {"request_timeout_ms": TIMEOUT_MS, "socket_connection_setup_timeout_ms": TIMEOUT_MS}
"""With these options, a client that waits until a request or connection to the paused broker times out is found."""
PRODUCER = {
    **PATIENT,
    "buffer_memory": 2_000_000,
    "max_block_ms": int(LIMIT_S * 1000),
    "delivery_timeout_ms": TIMEOUT_MS + 10_000,
}
"""A send that waits for the paused broker fails after max.block.ms. A record that waits for the paused broker is never
acknowledged, and fails after delivery.timeout.ms.
"""
RECORDS, MAX_WAITING = 10_000, 1_500
"""The records of 1,000 bytes that are sent, and how many of them may wait for the paused broker: less than 3/4 of
buffer.memory.
"""


@pytest.fixture
def places(cluster: ReplicatedCluster, topic: str) -> list[TopicPartition]:
    """Return partitions that brokers 1, 2 and 3 lead, with one record each."""
    cluster.create_topic(topic, (1,), (2,), (3,), min_insync_replicas="1")
    found = [TopicPartition(topic, index) for index in range(3)]

    async def fill() -> None:
        async with Producer(cluster.addresses) as producer:
            for place in found:
                await producer.send_and_wait(topic, b"first", partition=place.partition)

    asyncio.run(fill())
    return found


async def read(consumer: Consumer, wanted: set[TopicPartition]) -> float:
    """Return how many seconds it takes to read one record from each partition."""
    began, missing = time.monotonic(), set(wanted)
    async with asyncio.timeout(60):
        while missing:
            missing -= (await consumer.poll(1_000)).keys()
    return time.monotonic() - began


def test_e54_consumers_read_what_the_others_lead(cluster: ReplicatedCluster, places: list[TopicPartition]) -> None:
    async def main() -> None:
        async with Consumer(cluster.addresses, auto_offset_reset="earliest", **PATIENT) as consumer:
            consumer.assign(places)
            await read(consumer, set(places))
            with cluster.paused(2):
                consumer.seek_to_beginning()
                assert await read(consumer, {places[0], places[2]}) < LIMIT_S
                began = time.monotonic()
                async with Consumer(cluster.addresses, auto_offset_reset="earliest", **PATIENT) as new:
                    new.assign(places)
                    await read(new, {places[0], places[2]})
                    # bootstrap, metadata requests and coordinator lookups may each have to notice that the broker hangs
                    assert time.monotonic() - began < 2 * LIMIT_S
            consumer.seek_to_beginning(places[1])
            await read(consumer, {places[1]})

    asyncio.run(main())


def test_e54_records_without_keys_are_written_to_the_others(
    cluster: ReplicatedCluster, places: list[TopicPartition]
) -> None:
    """While the broker hangs, the producer's records exceed buffer.memory."""

    async def main() -> None:
        async with Producer(cluster.addresses, **PRODUCER) as producer:
            await producer.send_and_wait(places[0].topic, b"begin")
            with cluster.paused(2):
                sent = [await producer.send(places[0].topic, b"x" * 1_000) for _ in range(RECORDS)]
                for acknowledged in islice(asyncio.as_completed(sent), RECORDS - MAX_WAITING):
                    await acknowledged
            await asyncio.gather(*sent)

    asyncio.run(main())
