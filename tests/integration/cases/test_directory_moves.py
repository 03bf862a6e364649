"""Tests that replicas move between the data directories of a live broker, while clients use them and while the broker
is killed.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from confluent_kafka import Consumer, Producer, TopicPartition
from foreign_clients import eventually
from raw_client import RawClient
from warm_commands import run_oncelog_text

from oncelog.admin import Admin, LogDirectory
from oncelog.cluster import TopicPartition as Partition
from oncelog.errors import KafkaError
from oncelog_protocol.errors import ErrorCode

SECONDS = 60


@pytest.fixture
def directories(tmp_path: Path) -> list[Path]:
    return [tmp_path / "a", tmp_path / "b"]


@pytest.fixture
def broker(directories: list[Path], broker_factory: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A broker with two data directories."""
    settings = {"log.dirs": ",".join(map(str, directories)), "log.segment.bytes": "100000"}
    process = broker_factory(settings, directories[0])
    process.data = Path(settings["log.dirs"])
    return process.start()


def admin_of(broker: BrokerProcess, topic: str, path: Path) -> None:
    async def move() -> None:
        async with Admin(broker.address) as admin:
            await admin.alter_replica_log_dirs(1, {Partition(topic, 0): str(path)})

    asyncio.run(move())


def replicas_in(broker: BrokerProcess, path: Path) -> dict[Partition, bool]:
    """Partition -> whether its replica in this directory is a future replica (a copy in progress)."""

    async def ask() -> dict[Partition, bool]:
        async with Admin(broker.address) as admin:
            (found,) = (await admin.describe_log_dirs()).values()
        directory = found[str(path)]
        assert isinstance(directory, LogDirectory)
        return {partition: replica.is_future for partition, replica in directory.replicas.items()}

    return asyncio.run(ask())


def other_of(broker: BrokerProcess, topic: str, directories: list[Path]) -> tuple[Path, Path]:
    """Return the directory of the topic's replica, and the other data directory."""
    here = next(path for path in directories if Partition(topic, 0) in replicas_in(broker, path))
    return here, next(path for path in directories if path != here)


def values_of(broker: BrokerProcess, topic: str, count: int) -> list[int]:
    """The values of the first `count` records."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "reads", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []

    def read() -> bool:
        found.extend(int(message.value()) for message in consumer.consume(1000, 1.0) if message.error() is None)
        return len(found) >= count

    try:
        eventually(read, f"{count} records are read")
    finally:
        consumer.close()
    return found


def test_a_replica_moves_while_a_producer_writes(broker: BrokerProcess, topic: str, directories: list[Path]) -> None:
    with RawClient(broker.port) as client:
        client.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True, "linger.ms": 1})
    stop, sent = threading.Event(), 0

    def write() -> None:
        nonlocal sent
        while not stop.is_set():
            producer.produce(topic, str(sent).encode(), partition=0)
            sent += 1
            if sent % 1000 == 0:
                producer.flush()
                stop.wait(0.02)  # even a busy machine must copy faster than this thread writes

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for _ in range(2):
            _, target = other_of(broker, topic, directories)
            done = run_oncelog_text(
                "topics", "move-dir", topic, "--broker", "1", "--to", str(target), "--wait",
                "--bootstrap-server", broker.address,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert replicas_in(broker, target)[Partition(topic, 0)] is False
    finally:
        stop.set()
        writing.join(SECONDS)
    assert producer.flush(SECONDS) == 0
    assert values_of(broker, topic, sent) == [*range(sent)]


@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=pytest.mark.soak)])
def test_no_record_is_lost_when_the_broker_is_killed_during_moves(
    broker: BrokerProcess, topic: str, directories: list[Path], kills: int
) -> None:
    with RawClient(broker.port) as client:
        client.create_topic(topic)
    chance, sent = random.Random(7), 0
    for _ in range(kills):
        producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
        for _ in range(3000):
            producer.produce(topic, str(sent).encode(), partition=0)
            sent += 1
        assert producer.flush(SECONDS) == 0
        _, target = other_of(broker, topic, directories)
        admin_of(broker, topic, target)
        threading.Event().wait(chance.random() * 0.2)
        broker.kill()
        broker.start()
        assert values_of(broker, topic, sent) == [*range(sent)]
        here = [path for path in directories if (path / f"{topic}-0").exists()]
        assert len(here) == 1
        assert not [name for path in directories for name in path.iterdir() if name.name.endswith("-future")]


def test_a_move_that_is_not_possible_is_refused(broker: BrokerProcess, topic: str, directories: list[Path]) -> None:
    with RawClient(broker.port) as client:
        client.create_topic(topic)
    for name, path, code in (
        (topic, Path("/none"), ErrorCode.LOG_DIR_NOT_FOUND),
        (f"{topic}-unknown", directories[0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        with pytest.raises(KafkaError) as refused:
            admin_of(broker, name, path)
        assert refused.value.code is code
    done = run_oncelog_text(
        "topics", "move-dir", topic, "--broker", "1", "--to", "/none", "--bootstrap-server", broker.address
    )
    assert done.returncode != 0
    assert "LOG_DIR_NOT_FOUND" in done.stderr
