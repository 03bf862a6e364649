"""Compares AlterReplicaLogDirs of brokers with two log directories: the log moves, and nothing that clients see
changes.
"""

from __future__ import annotations

import time

from tests.interop.differential.batches import batch
from tests.interop.differential.calls import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    add_partitions,
    await_markers,
    create,
    delete_records,
    describe_producers,
    end_transaction,
    fetch,
    idempotent_producer,
    list_offsets,
    produce,
    transactional_producer,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import PATIENCE_SECONDS, PAUSE_SECONDS, ScenarioBroken, Side

from oncelog_protocol.api import ApiKey


def replicas(side: Side, topic: str) -> dict[str, list[tuple[int, bool]]]:
    """Return, for each log directory, the partitions of the topic and whether their logs are copies in progress."""
    answer = side.get(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
    found: dict[str, list[tuple[int, bool]]] = {}
    for directory in answer.results:
        here = found.setdefault(directory.log_dir, [])
        for one in directory.topics:
            if one.name == side.own(topic):
                here += [(each.partition_index, each.is_future_key) for each in one.partitions]
    return found


def places(side: Side, topic: str, partition: int = 0) -> tuple[str, str]:
    """Return the log directory of a partition, and the other log directory. Waits until the broker has created the log.
    Raises ScenarioBroken.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = replicas(side, topic)
        for here, there in found.items():
            if (partition, False) in there:
                (other,) = found.keys() - {here}
                return here, other
        time.sleep(PAUSE_SECONDS)
    raise ScenarioBroken(f"{side.name}: {topic}-{partition} is in no directory: {found}")


def move(side: Side, topic: str, path: str, label: str, *, partition: int = 0, version: int = 2) -> None:
    topics = [{"name": side.own(topic), "partitions": [partition]}]
    side.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, version, {"dirs": [{"path": path, "topics": topics}]}, label)


def await_move(side: Side, topic: str, path: str, partition: int = 0) -> None:
    """Wait until the log of the partition is in this directory, and nowhere else. Raises ScenarioBroken."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = {
            place: [each for each in there if each[0] == partition] for place, there in replicas(side, topic).items()
        }
        if found == {place: [(partition, False)] if place == path else [] for place in found}:
            return
        time.sleep(PAUSE_SECONDS)
    raise ScenarioBroken(f"{side.name}: {topic}-{partition} does not move to {path}: {found}")


def relocate(side: Side, topic: str, label: str, partition: int = 0) -> None:
    """Move the log of a partition to the other directory, and wait until it is there."""
    _, other = places(side, topic, partition)
    move(side, topic, other, label, partition=partition)
    await_move(side, topic, other, partition)


@scenario
def moves(side: Side) -> None:
    """Move a log twice, with the requests that do not change anything before, during and after each move."""
    create(side, "a")
    for version in (1, 2):
        here, other = places(side, "a")
        produce(side, "a", batch(3), f"before, v{version}")
        move(side, "a", here, "where it is", version=version)
        move(side, "a", other, "to the other directory", version=version)
        produce(side, "a", batch(2), f"during, v{version}")
        move(side, "a", other, "to the other directory again", version=version)
        await_move(side, "a", other)
        move(side, "a", other, "where it is now", version=version)
        produce(side, "a", batch(1), f"after, v{version}")
        fetch(side, "a", label=f"after, v{version}")
    for timestamp in (LATEST, EARLIEST):
        list_offsets(side, "a", timestamp)


@scenario
def change_of_mind(side: Side) -> None:
    """Name the present directory while a log moves, which cancels the move."""
    create(side, "a")
    produce(side, "a", batch(3))
    here, other = places(side, "a")
    move(side, "a", other, "to the other directory")
    move(side, "a", here, "back")
    await_move(side, "a", here)
    produce(side, "a", batch(3), "after it")
    fetch(side, "a")


@scenario
def producers_move(side: Side) -> None:
    """Move a log with the state of its producers: duplicates, gaps, and deleted records."""
    create(side, "a")
    producer = idempotent_producer(side)
    for sequence in range(4):
        produce(side, "a", batch(1, producer, sequence), f"sequence {sequence}")
    delete_records(side, "a", 2)
    relocate(side, "a", "to the other directory")
    for sequence, label in ((3, "duplicate"), (0, "old duplicate"), (6, "gap"), (4, "next"), (4, "next again")):
        produce(side, "a", batch(1, producer, sequence), label)
    describe_producers(side, "a", 0)
    fetch(side, "a", 2)
    list_offsets(side, "a", EARLIEST)


@scenario
def open_transaction_moves(side: Side) -> None:
    """Move a log with an open transaction, which is then committed, and back after an aborted one."""
    create(side, "a")
    for name, commits in (("t", True), ("u", False)):
        producer = transactional_producer(side, name)
        add_partitions(side, producer, {"a": [0]}, name)
        produce(side, "a", batch(2, producer, 0), name, transactional_id=name)
        relocate(side, "a", f"{name}: to the other directory")
        list_offsets(side, "a", LATEST, f"{name} is open", isolation=READ_COMMITTED)
        fetch(side, "a", label=f"{name} is open", isolation=READ_COMMITTED)
        produce(side, "a", batch(1, producer, 2), f"{name} after the move", transactional_id=name)
        produce(side, "a", batch(1, producer, 2), f"{name}, duplicate", transactional_id=name)
        end_transaction(side, producer, commits, name)
        await_markers(side, "a")
        fetch(side, "a", label=f"{name} has ended", isolation=READ_COMMITTED)
    relocate(side, "a", "at last")
    fetch(side, "a", label="at last", isolation=READ_COMMITTED)
    describe_producers(side, "a", 0)
