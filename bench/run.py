"""Implements `make bench`: measures the costs of the broker and its start-up time, prints them as a table, and stores
them in bench/ (`kept.py`).

Seconds depend on the machine, so the CPU numbers and the ratios are more meaningful. The library clients run one after
another against the same broker, A B A B, and the better of two rounds counts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parent.parent
sys.path[:0] = [
    str(ROOT),
    str(ROOT / "bench"),
    *(
        str(ROOT / "tests" / each)
        for each in ("integration", "integration/clients", "integration/programs", "interop", "cluster")
    ),
]

import apache  # noqa: E402
import apache_cluster  # noqa: E402
import authorizer  # noqa: E402
import broker_cost as cost  # noqa: E402
import cleaner_cost as cleaner  # noqa: E402
import clients  # noqa: E402
import cluster  # noqa: E402
import connections  # noqa: E402
import kept  # noqa: E402
import kfake  # noqa: E402
import library_clients as libraries  # noqa: E402
import producer_ids  # noqa: E402
import producers as many  # noqa: E402
import recovery  # noqa: E402
import resident  # noqa: E402
import sizing  # noqa: E402
import spark  # noqa: E402
import spark_latency  # noqa: E402
import spark_sink  # noqa: E402
import spark_source  # noqa: E402
import tls_cost  # noqa: E402
import transactions  # noqa: E402
import workers  # noqa: E402
import workers_kill  # noqa: E402
from broker_process import BrokerProcess  # noqa: E402
from consumer_groups import consumer_groups_cost, longest_turn_ms  # noqa: E402
from groups import groups_cost  # noqa: E402
from raw import RawClient  # noqa: E402
from table import Add, Row, Table  # noqa: E402

from oncelog_protocol.records.compression import Compression  # noqa: E402

BROKER_SETTINGS = {"log.retention.check.interval.ms": "200"}


def start_up(table: Table, rounds: int) -> None:
    """Measure the time from the start of the process to the first acknowledged record, in an empty directory."""
    taken, resident = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as directory:
            started = time.perf_counter()
            with BrokerProcess(Path(directory) / "data") as broker:
                client = RawClient(broker.port)
                cost.auto_create(client, "first")
                for frame in client.pipeline(cost.produce_request("first", cost.batch(100, 100)), 1, 1):
                    cost.check_produced(frame)
                taken.append(time.perf_counter() - started)
                resident.append(cost.resident_megabytes(broker.pid))
                client.close()
    table.add("start to first acknowledged record (median)", statistics.median(taken), "s", at_most=0.4)
    table.add("resident memory then (median)", statistics.median(resident), "MB", at_most=50)


def single_records(table: Table, client: RawClient, pid: int, count: int) -> None:
    cost.recycled_topic(client, "single")
    for size in (100, 1000):
        batch = cost.batch(size, size)
        request = cost.produce_request("single", batch)
        cost.produce_cost(client, pid, request, len(batch), 2000, 64)
        for window in (1, 64):
            for together in (True, False):
                with cost.pinned(pid, together=together):
                    best = min(
                        cost.produce_cost(client, pid, request, len(batch), count, window).cpu_us_per_request
                        for _ in range(3)
                    )
                where = "one core" if together else "two cores"
                what = f"produce, 1 record of {size} B per request, {window} in flight, {where}"
                table.add(what, best, "CPU us/request", at_most=40 if together else None)


def producers(table: Table, ids: int) -> None:
    table.add(f"memory of {ids:,} producer ids with full windows", many.memory_of_producers(ids), "MB", at_most=40)
    stalls = many.stalls(ids)
    table.add(f"expiring {ids:,} producer ids, longest stall", stalls.expiry, "ms", at_most=10)
    table.add(f"image of {ids:,} producer ids for a snapshot, stall", stalls.image, "ms", at_most=10)
    with tempfile.TemporaryDirectory() as directory:
        crashed, clean = many.reopening(directory, ids)
    table.add(f"reopening a log with {ids:,} producer ids, clean", clean, "s", at_most=2)
    table.add(f"reopening a log with {ids:,} producer ids, after a crash", crashed, "s", at_most=2)


def batches(table: Table, client: RawClient, pid: int, megabytes: int) -> None:
    """Produce, then fetch, in batches; measure wire bytes per broker CPU second."""
    for kilobytes in (16, 64, 256, 1024):
        plain = cost.batch(kilobytes * 1024, 1000)
        packed = cost.batch(kilobytes * 1024, 1000, Compression.LZ4)
        produced: dict[str, float] = {"plain": 0.0, "lz4": 0.0}
        for name in produced:
            cost.recycled_topic(client, f"{name}-{kilobytes}")
        for turn in range(4):  # the first round is a warm-up: the cost of fresh pages is not measured
            for name, batch in (("plain", plain), ("lz4", packed)):
                request = cost.produce_request(f"{name}-{kilobytes}", batch)
                count = max(4, megabytes * 1024 * 1024 // len(batch))
                spent = cost.produce_cost(client, pid, request, len(batch), count, 4)
                if turn:
                    produced[name] = max(produced[name], spent.gb_per_cpu_second)
        target = 1.0 if kilobytes >= 64 else None
        table.add(f"produce, {kilobytes} KB batches", produced["plain"], "GB/CPU second", at_least=target)
        table.add(
            f"produce, {kilobytes} KB batches, lz4 against plain",
            produced["lz4"] / produced["plain"],
            "ratio",
            at_least=0.9 if kilobytes >= 64 else None,
        )
        fetched = fetch(client, pid, f"read-{kilobytes}", plain)
        target = 1.5 if kilobytes >= 64 else None
        table.add(f"fetch, {kilobytes} KB batches, 1 MB per request", fetched, "GB/CPU second", at_least=target)


def fetch(client: RawClient, pid: int, topic: str, batch: bytes) -> float:
    """Return the best of three measurements of a log that is read repeatedly."""
    requests, total = cost.readable_log(client, topic, batch)
    cost.fetch_cost(client, pid, requests, total, 1)
    return max(cost.fetch_cost(client, pid, requests, total, 8).gb_per_cpu_second for _ in range(3))


async def library_rounds(table: Table, broker: BrokerProcess, records: int) -> None:
    for size in (100, 1000):
        for mode, count in (("batched", records), ("one at a time", records // 50)):
            best: dict[tuple[str, str], tuple[float, float]] = {}
            for turn in range(2):
                for library in libraries.LIBRARIES:
                    topic = f"{library.name}-{size}-{mode.replace(' ', '-')}-{turn}"
                    for direction, run in (("produce", library.produce), ("consume", library.consume)):
                        if direction == "consume" and mode != "batched":
                            continue
                        cpu, started = cost.cpu_seconds(broker.pid), time.perf_counter()
                        await run(broker.address, topic, count, size, mode == "batched")
                        seconds = time.perf_counter() - started
                        spent = (cost.cpu_seconds(broker.pid) - cpu) / count * 1e6
                        rate, least = best.get((library.name, direction), (0.0, float("inf")))
                        best[library.name, direction] = max(rate, count / seconds), min(least, spent)
            for (name, direction), (rate, spent) in best.items():
                table.add(f"{direction}, {size} B, {mode}: {name}", rate, "records/s")
                table.add(f"{direction}, {size} B, {mode}: {name}, broker CPU", spent, "us/record")


def compaction(table: Table, records: int) -> None:
    """Measure the cleaning of a compacted topic, while a client repeatedly sends a small request."""
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory) / "data", cleaner.BROKER_SETTINGS, log_level="info") as broker,
        contextlib.closing(RawClient(broker.port)) as client,
    ):
        keys = records // 100
        what = f"compacting {records:,} records of {keys:,} keys"
        # Of three equal rounds the best counts, because other processes on the machine can only make a result worse.
        rounds = [cleaner.measured_cleaning(client, broker, f"compact-{n}", records, keys) for n in range(3)]
        least = {name: min(getattr(found, name) for found in rounds) for name in vars(rounds[0])}
        table.add(f"{what}: broker CPU", least["cpu_seconds"], "s", at_most=5 * records / 1e6)
        table.add(f"{what}: it took", least["seconds"], "s")
        table.add(f"{what}: of its bytes were left", least["left"] * 100, "%")
        table.add("longest stall of the event loop meanwhile", least["longest_stall_ms"], "ms", at_most=10)
        table.add("longest answer meanwhile (ApiVersions)", least["slowest_ms"], "ms")
        table.add("99.9 % of the answers meanwhile within", least["p999_ms"], "ms")
        table.add("longest answer when idle, as many asked", least["slowest_idle_ms"], "ms")
        table.add("resident memory at its end", cost.resident_megabytes(broker.pid), "MB")


def groups(table: Table, client: RawClient, pid: int, count: int, heartbeats: int) -> None:
    spent = groups_cost(client, pid, count, heartbeats)
    table.add(f"{count} groups of one member: memory for each", spent.kilobytes_per_group, "KB")
    table.add("forming a group: join twice, sync", spent.join_us, "CPU us/group")
    table.add(f"heartbeat, {count} groups", spent.heartbeat_us, "CPU us/request", at_most=40)
    table.add(f"offset commit, 1 partition, {count} groups", spent.commit_us, "CPU us/request")


def consumer_groups(table: Table, scale: int) -> None:
    members, topics = 1000 // scale, 100
    partitions = 100 // scale
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory) / "data") as broker,
        cost.pinned(broker.pid, together=True),
    ):
        spent = consumer_groups_cost(broker.port, broker.pid, members, topics, partitions, 20_000 // scale)
        broker.kill()  # closing 10,000 logs is slow, and is not measured
    what = f"a group of {members:,} members and {topics * partitions:,} partitions (KIP-848)"
    table.add(f"{what}: a member joins", spent.join_us, "CPU us/request")
    table.add("heartbeat of a stable member", spent.heartbeat_us, "CPU us/request", at_most=30)
    table.add("from the last join until all have their partitions", spent.assignment_seconds, "s")
    turn_ms = longest_turn_ms(members, topics, partitions)
    table.add("longest turn of the loop while the group is assigned", turn_ms, "ms", at_most=10)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="a tenth of the work, to see that it runs; not kept")
    arguments.add_argument("--only", choices=[*ALONE, *TOGETHER, *BESIDE_KAFKA])
    options = arguments.parse_args()
    scale = 10 if options.quick else 1
    found: dict[str, list[Row]] = {}
    for name, part in ALONE.items():
        if options.only in (None, name):
            found[name] = rows_of(lambda table, part=part: part(table, scale))
    together = [name for name in TOGETHER if options.only in (None, name)]
    if together:
        with (
            tempfile.TemporaryDirectory() as directory,
            BrokerProcess(Path(directory) / "data", BROKER_SETTINGS) as broker,
            contextlib.closing(RawClient(broker.port)) as client,
        ):
            for name in together:
                found[name] = rows_of(lambda table, name=name: TOGETHER[name](table, client, broker, scale))
    if options.only in BESIDE_KAFKA:
        beside = BESIDE_KAFKA[options.only]
        found[options.only] = rows_of(lambda table: beside(table.add, scale))
    if not options.quick:
        kept.keep(found)


def rows_of(measure: Callable[[Table], None]) -> list[Row]:
    table = Table()
    measure(table)
    return table.rows


def _batches(table: Table, client: RawClient, broker: BrokerProcess, scale: int) -> None:
    with cost.pinned(broker.pid, together=True):
        batches(table, client, broker.pid, 200 // scale)


ALONE: Final[dict[str, Callable[[Table, int], None]]] = {
    "start": lambda table, scale: start_up(table, 11 // scale + 1),
    "cleaner": lambda table, scale: compaction(table, 1_000_000 // scale),
    "transactions": lambda table, scale: transactions.measure(table.add, scale),
    "authorizer": lambda table, scale: authorizer.measure(table.add, scale),
    "tls": lambda table, scale: tls_cost.measure(table.add, scale),
    "consumer-groups": consumer_groups,
    "sizing": lambda table, scale: sizing.measure(table.add, scale),
    "resident": lambda table, scale: resident.measure(table.add, scale),
    "workers": lambda table, scale: workers.measure(table.add, scale),
    "workers-kill": lambda table, scale: workers_kill.measure(table.add, scale),
    "cluster": lambda table, scale: cluster.measure(table.add, scale),
    "spark": lambda table, scale: spark.measure(table.add, scale),
    "latency": lambda table, scale: spark_latency.measure(table.add, scale),
    "spark-sink": lambda table, scale: spark_sink.measure(table.add, scale),
    "spark-source": lambda table, scale: spark_source.measure(table.add, scale),
}
"""Parts of the benchmark that start their own brokers."""
TOGETHER: Final[dict[str, Callable[[Table, RawClient, BrokerProcess, int], None]]] = {
    "single": lambda table, client, broker, scale: single_records(table, client, broker.pid, 20_000 // scale),
    "producers": lambda table, client, broker, scale: producers(table, 100_000 // scale),
    "groups": lambda table, client, broker, scale: groups(table, client, broker.pid, 2000 // scale, 20_000 // scale),
    "batches": _batches,
    "libraries": lambda table, client, broker, scale: asyncio.run(library_rounds(table, broker, 50_000 // scale)),
}
"""Parts of the benchmark that share one broker."""
BESIDE_KAFKA: Final[dict[str, Callable[[Add, int], None]]] = {
    "apache": apache.compare,
    "apache-cluster": apache_cluster.compare,
    "connections": connections.measure,
    "clients": clients.measure,
    "kfake": kfake.measure,
    "producer-ids": producer_ids.measure,
    "recovery": recovery.measure,
}
"""Parts that run only when they are named, because they download other software, and warm up Apache Kafka."""


if __name__ == "__main__":
    main()
