"""Compares ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where a log begins and ends."""

from __future__ import annotations

from tests.interop.differential.batches import batch, now_ms
from tests.interop.differential.calls import (
    EARLIEST,
    GROUP,
    LATEST,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    add_partitions,
    await_stable_end,
    coordinator,
    create,
    delete_records,
    end_transaction,
    fetch,
    fill,
    idempotent_producer,
    list_offsets,
    produce,
    transactional_producer,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.scenarios.fetch import filled
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey

SPECIAL = (LATEST, EARLIEST, MAX_TIMESTAMP, -4, -5, -6, -7, -100)
"""Timestamps with a special meaning, and some invalid ones."""


@scenario
def by_time(side: Side) -> None:
    """Find the first record at or after a time, in records one second apart."""
    start = now_ms() - 50_000
    create(side, "a")
    fill(side, "a", [batch(2, timestamp=start + 1000 * number) for number in range(5)])
    for timestamp in SPECIAL:
        for version in (1, 2, 4, 5, 7, 8, 9, 10, 11):
            list_offsets(side, "a", timestamp, f"timestamp {timestamp}", version=version)
    for later in (-100, 0, 1, 999, 1000, 1001, 4000, 4001, 10_000):
        list_offsets(side, "a", start + later, f"{later} ms after the first")
    list_offsets(side, "a", 0, "timestamp 0")
    list_offsets(side, "a", 2**62, "timestamp 2^62")
    for version in (1, 2, 3, 6):
        list_offsets(side, "a", start, "the first", version=version)


@scenario
def list_odd_values(side: Side) -> None:
    """Send epochs, replica ids, missing partitions, and requests for an empty log."""
    filled(side)
    for epoch in (0, 1, 5, -1):
        for version in (4, 9):
            list_offsets(side, "a", LATEST, f"leader epoch {epoch}", leader_epoch=epoch, version=version)
    list_offsets(side, "a", LATEST, "leader epoch -2", leader_epoch=-2)
    list_offsets(side, "a", LATEST, "unknown partition", partition=7)
    list_offsets(side, "none", LATEST, "unknown topic")
    list_offsets(side, "a", LATEST, "isolation level 2", isolation=2)
    for replica in (3, -2):
        list_offsets(side, "a", LATEST, f"replica {replica}", replica_id=replica)
    both = [{"partition_index": 0, "timestamp": timestamp} for timestamp in (LATEST, EARLIEST)]
    for label, topics in (("partition twice", [{"name": side.own("a"), "partitions": both}]), ("no topics", [])):
        side.ask(ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "isolation_level": 0, "topics": topics}, label)
    create(side, "empty")
    for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, -4, -5, 0, 10**12):
        list_offsets(side, "empty", timestamp, f"empty log: {timestamp}")


@scenario
def leader_epochs(side: Side) -> None:
    """OffsetForLeaderEpoch."""
    filled(side)
    create(side, "empty")

    def ask(epoch: int, label: str, topic: str = "a", *, current: int = -1, version: int = 4, **more: int) -> None:
        partition = {"partition": more.get("partition", 0), "leader_epoch": epoch, "current_leader_epoch": current}
        topics = [{"topic": side.own(topic), "partitions": [partition]}]
        asked = {"replica_id": more.get("replica_id", -1), "topics": topics}
        side.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, asked, label)

    for version in (2, 3, 4):
        for epoch in (0, 1, 5, -1, -2):
            ask(epoch, f"epoch {epoch}", version=version)
    for current in (0, 1, 5, -1):
        ask(0, f"current epoch {current}", current=current)
    ask(0, "current epoch -2", current=-2)
    ask(0, "unknown partition", partition=9)
    ask(0, "unknown topic", "none")
    ask(0, "as a replica", replica_id=7)
    for epoch in (0, -1, -2):
        ask(epoch, f"empty log, epoch {epoch}", "empty")


@scenario
def delete(side: Side) -> None:
    """Send DeleteRecords with offsets before, inside and after the log."""
    filled(side)
    for version in (0, 1, 2):
        delete_records(side, "a", 3, version=version)
    for offset in (0, 2, 3):
        fetch(side, "a", offset)
    for timestamp in (EARLIEST, -4, 0):
        list_offsets(side, "a", timestamp, f"timestamp {timestamp}")
    for offset in (2, 0, 11, 10**12, -2, -5, 4, -1, -1):
        delete_records(side, "a", offset)
    list_offsets(side, "a", EARLIEST)
    list_offsets(side, "a", MAX_TIMESTAMP, "nothing left")
    produce(side, "a", batch(), "after it")
    delete_records(side, "a", 1, partition=5, label="unknown partition")
    delete_records(side, "none", 1, label="unknown topic")
    side.ask(ApiKey.DELETE_RECORDS, 2, {"topics": [], "timeout_ms": 5000}, "no topics")
    coordinator(side, "x", GROUP)
    delete_records(side, "__consumer_offsets", 0, label="__consumer_offsets")


@scenario
def delete_by_policy(side: Side) -> None:
    for policy in ("compact", "compact,delete"):
        name = policy.replace(",", "-")
        create(side, name, cleanup_policy=policy)
        fill(side, name, [batch(2, key=b"k")])
        delete_records(side, name, 1, label=policy)


@scenario
def deleted_under_a_producer(side: Side) -> None:
    """Delete the records of a producer, whose state must remain."""
    create(side, "a")
    producer = idempotent_producer(side)
    for sequence in range(3):
        produce(side, "a", batch(1, producer, sequence), f"sequence {sequence}")
    delete_records(side, "a", -1)
    for sequence, label in ((2, "duplicate of a deleted one"), (5, "gap"), (3, "the next")):
        produce(side, "a", batch(1, producer, sequence), label)


@scenario
def deleted_under_a_transaction(side: Side) -> None:
    """Delete the records of an open transaction, which still blocks read_committed consumers."""
    create(side, "a")
    producer = transactional_producer(side, "t")
    add_partitions(side, producer, {"a": [0]})
    produce(side, "a", batch(3, producer, 0), transactional_id="t")
    delete_records(side, "a", -1)
    list_offsets(side, "a", LATEST, isolation=READ_COMMITTED)
    list_offsets(side, "a", EARLIEST, isolation=READ_COMMITTED)
    for offset in (0, 3):
        fetch(side, "a", offset, isolation=READ_COMMITTED)
    end_transaction(side, producer)
    await_stable_end(side, "a", 4)
    list_offsets(side, "a", LATEST, isolation=READ_COMMITTED)
    fetch(side, "a", 3, isolation=READ_COMMITTED)


@scenario
def log_directories(side: Side) -> None:
    """Send DescribeLogDirs for some partitions, for no partition, for missing partitions, and for a partition that is
    named twice.
    """
    create(side, "a", 2)
    produce(side, "a", batch(3))

    def ask(version: int, label: str, **partitions: list[int]) -> None:
        topics = [{"topic": side.own(topic), "partitions": indexes} for topic, indexes in partitions.items()]
        side.ask(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": topics}, label)

    for version in (1, 2, 3, 4, 5):
        ask(version, "one", a=[0])
    for version in (4, 5):
        ask(version, "both", a=[0, 1])
        ask(version, "twice, and unknown ones", a=[0, 7, 0], none=[0])
        ask(version, "none")


@scenario
def directory_moves(side: Side) -> None:
    """Send AlterReplicaLogDirs to directories that the broker does not have, and to the present one; for missing
    topics and partitions, and for a partition that is named twice.
    """
    create(side, "a", 2)
    produce(side, "a", batch(3))
    (present, *_) = (each.log_dir for each in side.get(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}).results)

    def move(version: int, label: str, path: str, **partitions: list[int]) -> None:
        topics = [{"name": side.own(topic), "partitions": indexes} for topic, indexes in partitions.items()]
        side.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, version, {"dirs": [{"path": path, "topics": topics}]}, label)

    for version in (1, 2):
        move(version, "an unknown directory", "/no/such/directory", a=[0])
        move(version, "the present directory", present, a=[0, 1])
    move(2, "a relative path", "no/such/directory", a=[0])
    move(2, "an unknown partition", present, a=[7])
    move(2, "an unknown topic", present, none=[0])
    move(2, "twice", present, a=[0, 0])
    move(2, "nothing", present)
