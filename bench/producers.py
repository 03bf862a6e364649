"""Measures 100,000 producer ids in one partition: memory, expiry, reopening.

The producers are in a log of this process, so that memory and stalls can be measured directly.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.producers.state import ProducerState
from oncelog_broker.runtime.clock import SystemClock
from oncelog_broker.runtime.disk import RealDisk
from oncelog_protocol.records.batch import CRC_AT, HEADER, batch_crc
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

DAY_MS = 86_400_000


def headers(producers: int, batches: int) -> Iterator[tuple[int, ...]]:
    """Yield the headers of one-record batches in `batches` rounds, each of which has one batch of each producer."""
    now = time.time_ns() // 1_000_000
    offset = 0
    for sequence in range(batches):
        for producer_id in range(producers):
            yield offset, 100, 0, 2, 0, 0, 0, now, now, 2**40 + producer_id, 0, sequence, 1
            offset += 1


def memory_of_producers(count: int) -> float:
    """Return how many MB of resident memory `count` producers take, each with five remembered batches, the maximum."""
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    state = ProducerState(LogConfig())
    for header in headers(count, 5):
        state.follow(header)
    assert len(state) == count
    return (process.memory_info().rss - before) / 1e6


@dataclass
class Stalls:
    """The longest times in ms for which each operation would block the event loop."""

    expiry: float
    image: float


def stalls(count: int) -> Stalls:
    """Measure the stalls of an expiry of all producers, slice by slice, and of a snapshot of them."""
    state = ProducerState(LogConfig())
    for header in headers(count, 1):
        state.follow(header)
    started = time.perf_counter()
    state.image()
    image = time.perf_counter() - started
    longest, gone = 0.0, 0
    sweep = state.expire(time.time_ns() // 1_000_000 + 2 * DAY_MS, DAY_MS)
    while True:
        started = time.perf_counter()
        step = next(sweep, None)
        longest = max(longest, time.perf_counter() - started)
        if step is None:
            break
        gone = step
    assert gone == count
    return Stalls(longest * 1000, image * 1000)


def reopening(directory: str, count: int) -> tuple[float, float]:
    """Return two times in seconds for opening a log in which `count` producers have two batches each: the time after a
    crash, and the time after a clean shutdown.
    """
    path = os.path.join(directory, "many-0")

    def opened(**options: bool | int) -> PartitionLog:
        return PartitionLog.open(
            path, topic="many", partition=0, config=LogConfig(), disk=RealDisk(), clock=SystemClock(), **options
        )

    log = opened()
    batch = memoryview(build_batch([Record(0, time.time_ns() // 1_000_000, None, b"v", [])]))
    for header in headers(count, 2):
        _, length, epoch, magic, crc, *rest = HEADER.unpack_from(batch)
        HEADER.pack_into(batch, 0, 0, length, epoch, magic, crc, *rest[:4], *header[9:12], rest[-1])
        batch[CRC_AT : CRC_AT + 4] = batch_crc(batch).to_bytes(4, "big")
        log.append_as_leader(batch, leader_epoch=0)
    end = log.log_end_offset
    seconds = []
    for clean in (False, True):
        gc.collect()
        started = time.perf_counter()
        again = opened(recovery_point=end, clean_shutdown=clean)
        seconds.append(time.perf_counter() - started)
        assert len(again.producers.state) == count
        again.close()
    log.abandon()
    return seconds[0], seconds[1]
