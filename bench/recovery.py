"""Measures the recovery of 10 GB of log after kill -9, beside Apache Kafka: `python bench/run.py --only recovery`.

A log of 10 GB in batches of 1 MB (records of 1 KB, segments of 1 GB) is written to TMPDIR, which must be on a disk with
as much room, and deleted afterwards. After the first kill -9 the recovery point is that of the last flush. Before the
other kills the recovery points are deleted, so the whole log is checked: once as it is in the page cache, as after the
death of a process, and once after the cache of its files is dropped, as after a power cut. The seconds are those until
a record is acknowledged in this log.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

import broker_cost as cost
from raw import RawClient
from subjects import NAMES, Subject, running, started, without_kafka_if_unavailable
from table import Add

MEGABYTES: Final = 10_000
TOPIC: Final = "large"
BATCH_BYTES: Final = 1 << 20
WINDOW: Final = 4
CHECKPOINT: Final = "recovery-point-offset-checkpoint"


def measure(add: Add, scale: int) -> None:
    """Measure both brokers; the size of the log is divided by `scale`."""
    with without_kafka_if_unavailable():
        for name in NAMES:
            with running({}, {}, name) as subject:
                _measure(add, subject, name, MEGABYTES // scale)


def _measure(add: Add, subject: Subject, name: str, megabytes: int) -> None:
    what = f"{megabytes / 1000:g} GB of log"
    batch = cost.batch(BATCH_BYTES, 1000)
    with contextlib.closing(RawClient(subject.port)) as client:
        client.socket.settimeout(120)
        cost.create_topic(client, TOPIC, **{"max.message.bytes": str(2 * BATCH_BYTES), "retention.bytes": "-1"})
        request = cost.produce_request(TOPIC, batch)
        count = megabytes * 1_000_000 // len(batch)
        spent = cost.produce_cost(client, subject.pid, request, len(batch), count, WINDOW)
        add(f"{what}: written: {name}", spent.wire_bytes / spent.seconds / 1e6, "MB/s")
    subject.kill()
    _add_start(add, subject, f"{what}: start after kill -9: {name}")
    for how in ("in the page cache", "on the disk"):
        subject.kill()
        (subject.data / CHECKPOINT).unlink(missing_ok=True)
        if how == "on the disk":
            drop_cache(subject.data / f"{TOPIC}-0")
        _add_start(add, subject, f"{what}: start after kill -9 that checks all of it, {how}: {name}")
    add(f"{what}: resident memory after that: {name}", cost.resident_megabytes(subject.pid), "MB")
    began = time.perf_counter()
    subject.stop()
    add(f"{what}: orderly stop: {name}", time.perf_counter() - began, "s")
    _add_start(add, subject, f"{what}: start after an orderly stop: {name}")


def _add_start(add: Add, subject: Subject, what: str) -> None:
    seconds, cpu = started(subject, TOPIC)
    add(what, seconds, "s")
    add(f"{what}, CPU", cpu, "CPU s")


def drop_cache(directory: Path) -> None:
    """Write the files of a directory to the disk, and drop their pages from the page cache."""
    for path in directory.iterdir():
        descriptor = os.open(path, os.O_RDWR)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
