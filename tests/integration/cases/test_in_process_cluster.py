"""Tests three brokers in one process, with metadata in memory: a cluster without ZooKeeper and without Java."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

import pytest
from foreign_clients import eventually

from oncelog import Admin, NewTopic, Producer
from oncelog_testing.in_process import InProcessCluster, MemoryCluster

T = TypeVar("T")

UP_SECONDS, FIRST_SECONDS, NEXT_SECONDS = 0.1, 0.5, 1.0
"""Limits in seconds: until three brokers serve; until all replicas of an existing topic have a record; until a record
is acknowledged after the leader's session has ended.
"""
TRIES = 6
"""If a figure is too high, it is measured again this many times, because a defect is slow each time and a busy machine
is not.
"""


async def timed(work: Awaitable[T]) -> tuple[float, T]:
    """Run the work; return how many seconds it took, and its result."""
    began = time.monotonic()
    result = await work
    return time.monotonic() - began, result


async def first_written(cluster: MemoryCluster) -> int:
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("t", 1, 3)])
    return await written(cluster, b"first")


async def written(cluster: MemoryCluster, value: bytes) -> int:
    """Write a record, and return its offset once all in-sync replicas have it."""
    async with Producer(cluster.bootstrap_servers) as producer:
        return (await producer.send_and_wait("t", value)).offset


def log_ends(cluster: MemoryCluster) -> list[int]:
    return [each.parts.replication.replicas.log_end("t", 0)[1] for each in cluster.running]


async def play(directory: Path) -> tuple[float, float, float]:
    """Start a cluster, write a record, and write another record after the leader has lost its session; return how many
    seconds each step took.
    """
    cluster = MemoryCluster(directory)
    up, _ = await timed(cluster.start())
    try:
        first, offset = await timed(first_written(cluster))
        assert (offset, log_ends(cluster)) == (0, [1, 1, 1])
        before = cluster.leader_of("t")
        cluster.brokers[before].end_session()
        after, offset = await timed(written(cluster, b"next"))
        assert offset == 1
        assert cluster.leader_of("t") not in (before, -1)
        await cluster.until_whole()  # the broker whose session ended returns to the ISR
    finally:
        await cluster.stop()
    return up, first, after


@pytest.mark.measured
async def test_a_cluster_is_up_replicates_and_fails_over_in_a_moment(tmp_path: Path) -> None:
    # the first run in a process also imports modules and generates the codecs of messages
    await play(tmp_path / "warm")
    found = []
    for number in range(TRIES):
        found.append(await play(tmp_path / str(number)))
        print("up {:.3f} s, first record {:.3f} s, next one {:.3f} s".format(*found[-1]))
        if all(
            seconds <= most for seconds, most in zip(found[-1], (UP_SECONDS, FIRST_SECONDS, NEXT_SECONDS), strict=True)
        ):
            return
    raise AssertionError(found)


async def test_a_broker_that_is_stopped_and_started_again_has_its_port_and_its_records(tmp_path: Path) -> None:
    async with MemoryCluster(tmp_path) as cluster:
        assert await first_written(cluster) == 0
        leader = cluster.brokers[cluster.leader_of("t")]
        port = leader.port
        await leader.stop()
        assert await written(cluster, b"while it is away") == 1
        await leader.start()
        await cluster.until_whole()
        assert leader.port == port
        assert log_ends(cluster) == [2, 2, 2]


async def test_no_request_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measured time is from the start of the first broker to the stop of the last broker."""
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    async with MemoryCluster(tmp_path) as cluster:
        assert await first_written(cluster) == 0
        await cluster.brokers[1].stop()
        await cluster.brokers[1].start()
    assert synced == []


def test_a_foreign_client_writes_while_brokers_restart(tmp_path: Path) -> None:
    """librdkafka blocks the thread of the test while it waits, so this test shows that synchronous clients work."""
    from confluent_kafka import Consumer as LibrdkafkaConsumer
    from confluent_kafka import Producer as LibrdkafkaProducer

    with InProcessCluster(tmp_path) as cluster:
        cluster.create_topic("t")
        producer = LibrdkafkaProducer({"bootstrap.servers": str(cluster), "transactional.id": "tx"})
        producer.init_transactions(60)
        for number in range(3):
            producer.begin_transaction()
            producer.produce("t", str(number))
            producer.commit_transaction(60)
            cluster[cluster.leader_of("t")].end_session()
        cluster[1].stop()
        assert not cluster[1].is_running
        producer.begin_transaction()
        producer.produce("t", b"3")
        producer.commit_transaction(60)
        cluster.mend()
        assert all(broker.is_running for broker in cluster)
        settings = {"bootstrap.servers": str(cluster), "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = LibrdkafkaConsumer(settings)
        consumer.subscribe(["t"])
        read: list[bytes] = []

        def all_are_read() -> bool:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                read.append(message.value())
            return len(read) == 4

        eventually(all_are_read, "all records are read", 60)
        consumer.close()
    assert read == [b"0", b"1", b"2", b"3"]
