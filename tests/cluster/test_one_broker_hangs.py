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
LIMIT_S = STEPS * HANGING_S + 4
"""A limit in seconds that is much less than the 10 s and 30 s after which connections and requests time out."""
ACKNOWLEDGED_S = 5
"""In this number of seconds two brokers can acknowledge their records; it is less than the timeout of requests to the
third broker.
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
        async with Consumer(cluster.addresses, auto_offset_reset="earliest") as consumer:
            consumer.assign(places)
            await read(consumer, set(places))
            with cluster.paused(2):
                consumer.seek_to_beginning()
                assert await read(consumer, {places[0], places[2]}) < LIMIT_S
                began = time.monotonic()
                async with Consumer(cluster.addresses, auto_offset_reset="earliest") as new:
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
    options = {"buffer_memory": 2_000_000, "max_block_ms": 10_000, "delivery_timeout_ms": 60_000}

    async def main() -> None:
        async with Producer(cluster.addresses, **options) as producer:
            await producer.send_and_wait(places[0].topic, b"begin")
            with cluster.paused(2):
                longest, sent = 0.0, []
                for _ in range(10_000):
                    began = time.monotonic()
                    sent.append(await producer.send(places[0].topic, b"x" * 1_000))
                    longest = max(longest, time.monotonic() - began)
                assert longest < LIMIT_S
                # at most 1,500 records wait, which is less than 3/4 of buffer.memory
                async with asyncio.timeout(ACKNOWLEDGED_S):
                    for acknowledged in islice(asyncio.as_completed(sent), len(sent) - 1_500):
                        await acknowledged
            await asyncio.gather(*sent)

    asyncio.run(main())
