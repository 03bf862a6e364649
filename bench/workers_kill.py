"""Kills a worker with -9 under transactional load: `python bench/run.py --only workers-kill`.

PRODUCERS of our client commit transactions one after another, each with one numbered record in each partition, so that
each transaction spans both workers. Meanwhile one worker after the other is killed, KILLS times, with a pause in which
the supervisor forgets the last death. The time until a worker is back ends with the first acknowledged record in one of
its partitions, sent over a new connection. At the end a read_committed consumer counts each number. Each record of a
committed transaction must be there once, and none of an aborted one. If the client does not know how a transaction
ended, all of its records or none must be there.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

import broker_cost as cost
from raw import RawClient
from table import Add
from transaction_verdict import History, judged
from worker_processes import WorkerProcesses
from workers import PARTITIONS, TOPIC, WORKERS, is_acknowledged, leader_ports

PRODUCERS: Final = 8
KILLS: Final = 6
CALM_SECONDS: Final = 11.0
"""Seconds between two kills of the same worker, because the supervisor delays the restart of a worker that has died a
short time before.
"""
POLL_SECONDS: Final = 0.005
TIMEOUT_SECONDS: Final = 60.0
SINK: Final = "numbered"


def measure(add: Add, scale: int) -> None:
    with tempfile.TemporaryDirectory() as directory, WorkerProcesses(Path(directory) / "data") as workers:
        asyncio.run(_measure(add, workers, max(2, KILLS // scale)))


async def _measure(add: Add, workers: WorkerProcesses, kills: int) -> None:
    with contextlib.closing(RawClient(workers.port)) as client:
        for topic in (TOPIC, SINK):
            cost.ask_for_topic(client, topic, PARTITIONS)
        ports = leader_ports(client)
    history, ends = History(), asyncio.Event()
    load = [asyncio.create_task(produce(workers.address, number, history, ends)) for number in range(PRODUCERS)]
    await asyncio.sleep(CALM_SECONDS / 2)
    before, began = len(history.seconds), time.perf_counter()
    await asyncio.sleep(CALM_SECONDS / 2)
    rate = (len(history.seconds) - before) / (time.perf_counter() - began)
    back = []
    for number in range(kills):
        back.append(await asyncio.to_thread(_back_after, workers, ports, 1 + number % WORKERS))
        await asyncio.sleep(CALM_SECONDS / WORKERS)
    ends.set()
    await asyncio.gather(*load)
    verdict = judged(history, await count_visible(workers.address), PARTITIONS)
    what = f"kill -9 of a worker beside {PRODUCERS} transactional producers"
    add(f"{what}, to its next acknowledged record", statistics.median(back), "s", at_most=1.0)
    add(f"{what}, longest of {kills}", max(back), "s", at_most=1.0)
    add(f"{what}: transactions before it", rate, "txns/s")
    add(f"{what}: longest transaction", max(history.seconds), "s")
    add(f"{what}: committed", len(history.committed), "txns")
    add(f"{what}: aborted", len(history.aborted), "txns")
    add(f"{what}: end unknown to the client", len(history.unknown), "txns")
    add(f"{what}: records lost", verdict.lost, "records", at_most=0)
    add(f"{what}: records twice", verdict.twice, "records", at_most=0)
    add(f"{what}: torn or aborted transactions visible", verdict.torn, "txns", at_most=0)


async def produce(address: str, producer_number: int, history: History, ends: asyncio.Event) -> None:
    """Commit transactions until `ends` is set; after an error, start the next one with a new producer, which fences the
    old one.
    """
    from oncelog import Producer
    from oncelog.errors import KafkaError

    while not ends.is_set():
        producer = Producer(address, transactional_id=f"killed-{producer_number}", linger_ms=0)
        with contextlib.suppress(KafkaError):
            async with producer:
                while not ends.is_set():
                    number, began = next(history.numbers), time.perf_counter()
                    is_committing = False
                    try:
                        producer.begin_transaction()
                        for partition in range(PARTITIONS):
                            await producer.send(SINK, b"%d" % number, partition=partition)
                        await producer.flush()
                        is_committing = True
                        await producer.commit_transaction()
                    except KafkaError:
                        (history.unknown if is_committing else history.aborted).add(number)
                        raise
                    history.committed.add(number)
                    history.seconds.append(time.perf_counter() - began)


def _back_after(workers: WorkerProcesses, ports: dict[int, int], worker: int) -> float:
    """Kill the worker, and return the seconds until a record is acknowledged in one of its partitions."""
    partition, port = next((each, port) for each, port in ports.items() if port == workers.port + worker)
    began = time.perf_counter()
    workers.kill_worker(worker)
    while not is_acknowledged(port, partition):
        if time.perf_counter() - began > TIMEOUT_SECONDS:
            raise RuntimeError(f"worker {worker} is not back after {TIMEOUT_SECONDS} s")
        time.sleep(POLL_SECONDS)
    return time.perf_counter() - began


async def count_visible(address: str) -> Counter[tuple[int, int]]:
    """Read all committed records, and count them by transaction and partition."""
    from oncelog import Consumer, TopicPartition

    seen: Counter[tuple[int, int]] = Counter()
    partitions = [TopicPartition(SINK, number) for number in range(PARTITIONS)]
    async with Consumer(address, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(each) < ends[each] for each in partitions]):
            for source, records in (await consumer.poll(timeout_ms=500, max_records=5000)).items():
                seen.update((int(record.value), source.partition) for record in records)
    return seen
