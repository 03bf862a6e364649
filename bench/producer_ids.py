"""Measures 100,000 live producer ids, in one partition and over ten, beside Apache Kafka: `bench/run.py --only
producer-ids`.

Each producer writes idempotent batches of one record. The broker then rolls the log ROLLS times, and writes a snapshot
of all producers each time, while an honest client measures its waits (`waits.py`); a roll is forced by batches that are
larger than segment.bytes, which is set only then. The broker is killed with -9 and started again, stopped in an orderly
way and started again. `producers.py` measures the same state in a log alone.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import broker_cost as cost
from apache import OURS
from cleaner_cost import set_config
from raw import RawClient, prepared
from subjects import NAMES, Subject, running, started, without_kafka_if_unavailable
from table import Add, counted
from waits import Watch, watching

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.records.batch import CRC_AT, HEADER, batch_crc

IDS: Final = 100_000
PARTITIONS: Final = (1, 10)
ROLLS: Final = 5
FIRST_ID: Final = 2**40
"""Far above the ids that a broker gives away."""
WINDOW: Final = 64
SEGMENT_BYTES: Final = 1 << 20
"""The smallest segment that Kafka allows."""
SNAPSHOT_SECONDS: Final = 60.0
LONGEST_MS: Final = 10.0
"""The goal for the longest stall of the broker."""


def measure(add: Add, scale: int) -> None:
    """Measure both brokers; the number of ids is divided by `scale`."""
    with without_kafka_if_unavailable():
        for name in NAMES:
            for partitions in PARTITIONS:
                with running({}, {}, name) as subject:
                    _measure(add, subject, name, partitions, IDS // scale)


def _measure(add: Add, subject: Subject, name: str, partitions: int, ids: int) -> None:
    what, topic = f"{ids:,} producer ids in {counted(partitions, 'partition')}", f"ids-{partitions}"
    with contextlib.closing(RawClient(subject.port)) as client:
        cost.create_topic(client, topic, partitions)
        with watching(subject) as watch:
            resident = cost.resident_megabytes(subject.pid)
            for sequence, kind in enumerate(("first", "second")):
                frames = list(requests(topic, partitions, ids, sequence))
                spent = cost.measured(subject.pid, lambda frames=frames: _answered(client, frames))
                add(f"{what}, {kind} batch of each: {name}", spent.cpu_seconds / ids * 1e6, "CPU us/batch")
            add(f"{what}: memory: {name}", cost.resident_megabytes(subject.pid) - resident, "MB")
            rolls(add, subject, client, watch, name, what, topic, partitions)
            watch.stop()
            watch.add_rows(add, f"{what}, snapshots written", name, has_net=name == OURS, at_most=LONGEST_MS)
    subject.kill()
    seconds, cpu = started(subject, topic)
    add(f"{what}: start after kill -9: {name}", seconds, "s")
    add(f"{what}: start after kill -9, CPU: {name}", cpu, "CPU s")
    began = time.perf_counter()
    subject.stop()
    add(f"{what}: orderly stop: {name}", time.perf_counter() - began, "s")
    seconds, cpu = started(subject, topic)
    add(f"{what}: start after an orderly stop: {name}", seconds, "s")
    add(f"{what}: start after an orderly stop, CPU: {name}", cpu, "CPU s")


def rolls(
    add: Add, subject: Subject, client: RawClient, watch: Watch, name: str, what: str, topic: str, partitions: int
) -> None:
    """Roll the logs of all partitions, wait for their snapshots each time, and add what this took."""
    set_config(client, topic, "segment.bytes", str(SEGMENT_BYTES))
    big = request(topic, {partition: cost.batch(SEGMENT_BYTES * 9 // 10, 1000) for partition in range(partitions)})
    seconds, cpus, answers = [], [], []
    with watch.during(f"{what}, snapshots written"):
        for _ in range(ROLLS):
            before = snapshots(subject.data, topic)
            cpu, began = cost.cpu_seconds(subject.pid), time.perf_counter()
            client.socket.sendall(big)
            cost.check_produced(client.read_frame())
            answers.append(time.perf_counter() - began)
            while len(snapshots(subject.data, topic) - before) < partitions:
                if time.perf_counter() - began > SNAPSHOT_SECONDS:
                    raise RuntimeError(f"no snapshot after {SNAPSHOT_SECONDS} s: {sorted(before)}")
                time.sleep(0.01)
            seconds.append(time.perf_counter() - began)
            time.sleep(0.2)  # until the files are synced and older ones deleted
            cpus.append(cost.cpu_seconds(subject.pid) - cpu)
    add(f"{what}, from a roll until all snapshots are there: {name}", statistics.median(seconds), "s")
    add(f"{what}, the Produce that rolls: {name}", statistics.median(answers) * 1000, "ms")
    add(f"{what}, a roll and its snapshots: {name}", statistics.median(cpus), "CPU s")


def snapshots(data: Path, topic: str) -> set[str]:
    """Return the paths of all complete snapshot files of the topic."""
    return {str(path) for path in data.glob(f"{topic}-*/*.snapshot") if path.stat().st_size}


def requests(topic: str, partitions: int, ids: int, sequence: int) -> Iterator[bytes]:
    """Yield Produce requests that together have a batch of one record of each producer."""
    one = cost.batch(100, 100)
    for first in range(0, ids, partitions):
        yield request(topic, {each: idempotent(one, FIRST_ID + first + each, sequence) for each in range(partitions)})


def idempotent(batch: bytes, producer_id: int, sequence: int) -> bytes:
    """Return the batch with this producer id and sequence, and epoch 0."""
    made = bytearray(batch)
    fields = HEADER.unpack_from(made)
    HEADER.pack_into(made, 0, *fields[:-4], producer_id, 0, sequence, fields[-1])
    made[CRC_AT : CRC_AT + 4] = batch_crc(memoryview(made)).to_bytes(4, "big")
    return bytes(made)


def request(topic: str, batches: dict[int, bytes]) -> bytes:
    data = ProduceRequest.TopicProduceData
    each = [data.PartitionProduceData(index=index, records=records) for index, records in batches.items()]
    made = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data(name=topic, partition_data=each)])
    return prepared(made, ApiKey.PRODUCE, cost.PRODUCE_VERSION)


def _answered(client: RawClient, frames: list[bytes]) -> tuple[int, int]:
    frame = b""
    for frame in client.pipeline_all(frames, WINDOW):
        pass
    cost.check_produced(frame)
    return len(frames), 0
