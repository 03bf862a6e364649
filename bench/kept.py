"""Stores the results of the benchmarks: `results.json`, `DETAILS.md` (the same results as tables), `RESULTS.md` (a
selection on one page), and a table of docs/guides/sizing.md.

Each part of `run.py` replaces only its own results, so that a single part can be measured again. `python bench/kept.py`
writes all pages again from the stored results.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from table import Row, Table

HERE: Final = Path(__file__).parent
JSON: Final = HERE / "results.json"
GUIDE: Final = HERE.parent / "docs" / "guides" / "sizing.md"
BEGIN, END = "<!-- broker -->\n", "<!-- end of broker -->\n"
"""The marks of the guide between which the table of the part `sizing` stands."""
Parts = dict[str, dict[str, Any]]
"""Maps the name of each part to its `date`, `machine` and `rows`."""


class Line(NamedTuple):
    """A line of the page: the question of a reader, the row with oncelog's result, and the row of the peer."""

    what: str
    ours: str
    peer_name: str = ""
    peer: str = ""


KAFKA: Final = "Apache Kafka 4.3.1"
KILL: Final = "kill -9 of a worker beside 8 transactional producers"
PAGE: Final[Mapping[str, list[Line]]] = {
    "The broker beside Apache Kafka, warmed up (the same raw load in turns; `apache.svg` shows the spread)": [
        Line(row, f"{row}: oncelog", KAFKA, f"{row}: {KAFKA}")
        for row in (
            "produce, 1 record of 100 B, 1 in flight: CPU",
            "produce, 1 record of 100 B, 64 in flight: CPU",
            "produce, 1 record of 100 B, 50 connections: CPU",
            "produce, 1 record of 100 B, 50 connections: rate",
            "produce, 1 record of 100 B, 500 connections: CPU",
            "produce, 1 record of 100 B, 500 connections: rate",
            "produce, 64 KB batches: bytes per CPU second",
            "produce, 1024 KB batches: bytes per CPU second",
            "fetch, 64 KB batches, 1 MB per request: bytes per CPU second",
            "fetch, 1024 KB batches, 1 MB per request: bytes per CPU second",
            "transaction, 1 record to each of 1 partition: CPU",
            "transaction, 1 record to each of 1 partition: time",
            "transaction, 1 record to each of 10 partitions: CPU",
            "transaction, 1 record to each of 10 partitions: time",
            "transactions of 64 producers at once: CPU",
            "transactions of 64 producers at once: rate",
            "three replicas, acks=all, 1 record of 1000 B in flight: p50",
            "three replicas, acks=all, 1 record of 1000 B in flight: CPU of all brokers",
            "three replicas, acks=all, 64 KB batches of 1 KB records: time",
            "three replicas, acks=all, 64 KB batches of 1 KB records: CPU of all brokers",
            "resident memory",
        )
    ],
    "The last comparison of two builds: `bench/compare.py --keep` (CPU of the broker, in turns, loaded machine)": [
        Line(what, f"{what}: after", "before", f"{what}: before")
        for what in (
            "produce 1 x 100 B, 1 in flight",
            "produce 1 x 100 B, 64 in flight",
            "produce 1 x 100 B, 50 connections",
            "produce 64 KB of 1 KB records",
            "fetch 64 KB",
            "transaction of one record (V1)",
            "transaction of one record (V2)",
            "transaction over 10 partitions (V1)",
        )
    ],
    "The broker alone": [
        Line("start to the first acknowledged record", "start to first acknowledged record (median)"),
        Line("resident memory then", "resident memory then (median)"),
        Line("resident memory after rounds of all loads", "resident memory after all loads, round 6"),
        Line("of it, without pages of files", "resident memory after all loads without pages of files, round 6"),
        Line("CPU without requests, 650 connections open", "CPU without requests, 650 connections open"),
        Line("longest stall while a million records are compacted", "longest stall of the event loop meanwhile"),
        Line("memory of a group", "2000 groups of one member: memory for each"),
        Line("memory of 100,000 producer ids", "memory of 100,000 producer ids with full windows"),
    ],
    "Many partitions (seconds by the wall, on a loaded machine; before: each log was opened, synced and visited)": [
        Line(
            f"{count:,} partitions: {what}",
            f"{count:,} partitions: {row}",
            "before",
            f"before: {count:,} partitions: {row}",
        )
        for count in (1_000, 5_000, 10_000)
        for what, row in (
            (
                "start after kill -9, one written since the last stop",
                "start after kill -9, 1 written since the stop: ready",
            ),
            (
                "start after kill -9, all written since the last stop",
                "start after kill -9, all written since the stop: ready",
            ),
            ("orderly stop, each written once", "orderly stop, each written once"),
            ("idle CPU", "idle CPU"),
        )
    ],
    "Several workers": [
        *(
            Line(what, f"{row}: 2 workers", "a broker alone", f"{row}: a broker alone")
            for count in (50, 500)
            for what, row in (
                (f"one record, {count} connections, CPU", f"{count} connections, 1 record of 100 B each"),
                (
                    f"one record, {count} connections, rate",
                    f"{count} connections, 1 record of 100 B each, by the clock",
                ),
                (
                    f"16 records in flight, {count} connections, rate",
                    f"{count} connections, 16 records of 100 B each, by the clock",
                ),
            )
        ),
        *(
            Line(
                f"two workers with two cores to one with one, {count} connections (ratio)",
                f"{count} connections, 1 record of 100 B each: 2 workers on as many cores to one on one",
            )
            for count in (50, 500)
        ),
        *(
            Line(what, f"{row}, 2 workers", "a broker alone", f"{row}, a broker alone")
            for what, row in (("memory of all processes", "memory after that"), ("idle CPU", "idle CPU"))
        ),
        *(
            Line(f"kill -9 of a worker beside transactions: {what}", f"{KILL}{row}")
            for what, row in (
                ("to its next record", ", to its next acknowledged record"),
                ("records lost", ": records lost"),
                ("records twice", ": records twice"),
            )
        ),
    ],
    "Many connections and producers, and much log, beside Apache Kafka, warmed up": [
        *(
            Line(what, f"{row}: oncelog", KAFKA, f"{row}: {KAFKA}")
            for what, row in (
                ("9,900 connections opened, one request each: CPU", "9,900 connections opened"),
                ("9,900 connections, one record from each: CPU", "9,900 connections, one record of 100 B from each"),
                (
                    "9,900 idle connections, and one that asks 200 times a second: CPU",
                    "9,900 idle connections beside one that asks 200 times a second",
                ),
                (
                    "100,000 producer ids: start after kill -9",
                    "100,000 producer ids in 1 partition: start after kill -9",
                ),
                ("10 GB of log: start after kill -9", "10 GB of log: start after kill -9"),
                (
                    "10 GB of log: start after kill -9 that checks all of it",
                    "10 GB of log: start after kill -9 that checks all of it, in the page cache",
                ),
            )
        ),
        Line("a connection: memory", "9,900 connections: memory of each, after records: oncelog"),
        *(
            Line(
                f"longest wait that the broker causes while 5,000 connections {what}",
                f"5,000 connections {row}: longest wait that the broker causes: oncelog",
            )
            for what, row in (
                ("open, ask and close, 40 at a time", "open, ask and close, 40 at a time"),
                ("open, ask, and close together", "open and ask, then close together"),
            )
        ),
        *(
            Line(
                f"longest wait that the broker causes while snapshots of 100,000 producer ids are written, {where}",
                f"100,000 producer ids in {where}, snapshots written: longest wait that the broker causes: oncelog",
            )
            for where in ("1 partition", "10 partitions")
        ),
        Line("100,000 producer ids: memory", "100,000 producer ids in 1 partition: memory: oncelog"),
    ],
    "Three brokers and ZooKeeper on one machine, three replicas (seconds by the wall)": [
        Line(
            "one record, acks=all, p50 (beside acks=1)",
            "acks=all, 3 replicas, 1 record of 1000 B, one in flight: p50",
            "acks=1",
            "acks=1, 3 replicas, 1 record of 1000 B, one in flight: p50",
        ),
        Line(
            "one record, acks=all, p99 (beside acks=1)",
            "acks=all, 3 replicas, 1 record of 1000 B, one in flight: p99",
            "acks=1",
            "acks=1, 3 replicas, 1 record of 1000 B, one in flight: p99",
        ),
        Line(
            "64 KB batches, acks=all (beside acks=1)",
            "acks=all, 3 replicas, 64 KB batches, 8 in flight",
            "acks=1",
            "acks=1, 3 replicas, 64 KB batches, 8 in flight",
        ),
        Line(
            "kill -9 of a leader to the next acknowledged record, session of 2 s",
            "kill -9 of a leader to the next acks=all record, session of 2 s",
        ),
        Line("1,000 partitions made", "1,000 partitions of 3 replicas: until all brokers show their leaders"),
        Line("CPU of one broker for that", "1,000 partitions of 3 replicas: CPU of the broker that needed most"),
        Line(
            "kill -9 of the controller to the next one, session of 2 s",
            "1,000 partitions: kill -9 of the controller to the next one, session of 2 s",
        ),
        Line(
            "start of a broker after kill -9, 1,000 partitions",
            "1,000 partitions: start of a broker after kill -9, until it serves",
        ),
        Line("CPU of that broker", "1,000 partitions: start of a broker after kill -9, its CPU"),
    ],
    "What exactly once costs (ratio to the same without)": [
        Line("idempotent, 64 KB batches", "idempotent against plain, 64 KB batches of 1 KB records"),
        Line("idempotent, one record", "idempotent against plain, 1 record of 100 B per request"),
        Line("in transactions of 20 MB, 64 KB batches", "transactional against plain, 64 KB batches of 1 KB records"),
        Line(
            "consume-process-produce of one record, oncelog's client",
            "one-record consume-process-produce, oncelog, transaction against naive",
            "aiokafka",
            "one-record consume-process-produce, aiokafka, transaction against naive",
        ),
    ],
    "What security costs (CPU of the broker, in turns with the same without)": [
        Line("1,000 ACLs, produce of one record (ratio)", "1,000 ACLs against no authorizer, produce of 1 record"),
        *(
            Line(f"TLS, {what}", f"{row}, with TLS", "without", f"{row}, without TLS beside it")
            for what, row in (
                ("produce, one record of 100 B, one in flight", "produce, 1 record of 100 B per request"),
                ("fetch, 900 KB batches", "fetch, 900 KB batches"),
                ("a connection made and closed", "connections"),
            )
        ),
    ],
    "The pipeline: rows per CPU second of the JVM and all Python workers, 100 B": [
        *(
            Line(what, f"{row}: oncelog", "Spark's connector", f"{row}: Spark's connector")
            for what, row in (
                ("source, batch read, 4 partitions", "batch read, 100 B, 4 partitions"),
                ("source, a short AvailableNow query, 4 partitions", "short AvailableNow query, 100 B, 4 partitions"),
            )
        ),
        *(
            Line(
                f"sink, exactly once, {what}", f"{row}: exactly once", "Spark's connector", f"{row}: Spark's connector"
            )
            for what, row in (
                ("no keys, 4 partitions", "sink, 100 B, no keys, 4 partitions"),
                ("keys, 16 partitions", "sink, 100 B, keys, 16 partitions"),
            )
        ),
    ],
    "Acknowledged when it is on the disk: flush.messages=1 (`bench/group_commit.py`, in turns with the same without)": [
        *(
            Line(what, f"{row}: flush.messages=1", "without", f"{row}: without")
            for what, row in (
                ("64 producers, records of 100 B in batches", "64 oncelog producers, records of 100 B in batches"),
                (
                    "64 producers, each waits for each record",
                    "64 oncelog producers, each waits for each record of 100 B",
                ),
                (
                    "64 connections, 1 record per request, 5 requests in flight each",
                    "64 raw connections, 1 record of 100 B, 5 in flight each",
                ),
            )
        ),
        Line("one fsync of the disk under test", "one fsync of the disk under test: p50"),
    ],
    "The client beside others (our broker, one core for each client, in turns)": [
        Line(f"{what}, rate", f"{load}: oncelog", other, f"{load}: {other}")
        for what, load in (
            ("idempotent producer, 1 KB records", "produce idempotently, records of 1 KB"),
            ("transactions of one record, one after another", "transactions of one record of 1 KB, one after another"),
            ("consumer, 1 KB records", "consume records of 1 KB"),
        )
        for other in ("aiokafka", "confluent-kafka", "Java 4.3.1")
    ],
    "The broker beside kfake, the fake broker of franz-go (librdkafka, transactions of one record, in turns)": [
        Line(what, f"{row}: oncelog", "kfake", f"{row}: kfake")
        for what, row in (
            ("one transaction after another", "librdkafka, transaction of one record"),
            ("CPU of the broker", "librdkafka, transaction of one record, broker"),
        )
    ],
}


def load() -> Parts:
    parts: Parts = json.loads(JSON.read_text())["parts"] if JSON.exists() else {}
    return parts


def keep(found: Mapping[str, list[Row]]) -> None:
    """Replace the results of these parts, and write both pages again."""
    parts = load()
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    for name, rows in found.items():
        if rows:
            parts[name] = {"date": time.strftime("%Y-%m-%d"), "machine": machine, "rows": [vars(row) for row in rows]}
    JSON.write_text(json.dumps({"parts": parts}, indent=1) + "\n")
    write_pages(parts)


def write_pages(parts: Parts) -> None:
    (HERE / "DETAILS.md").write_text(details(parts))
    (HERE / "RESULTS.md").write_text(page(parts))
    GUIDE.write_text(with_costs(GUIDE.read_text(), parts))


def with_costs(guide: str, parts: Parts) -> str:
    """Return the text of the guide with the stored results of the part `sizing`."""
    before, after = guide.split(BEGIN)[0], guide.split(END)[1]
    lines = [f"| {row['what']} | {_cost(row['value'], row['unit'])} |\n" for row in parts["sizing"]["rows"]]
    return f"{before}{BEGIN}| What | Cost |\n| --- | ---: |\n{''.join(lines)}{END}{after}"


def _cost(value: float, unit: str) -> str:
    """Return a result with its unit, with two or three significant digits."""
    if value >= 100:
        shown = f"{round(value, 3 - len(str(int(value)))):,.0f}"
    else:
        shown = f"{value:.1f}" if value >= 1 else f"{value:.2f}"
    return f"{shown} {unit.replace('us', 'µs')}"


def details(parts: Parts) -> str:
    text = "# All figures\n\nBy the parts of `bench/run.py`. What the columns mean: README.md here.\n"
    for name, part in parts.items():
        table = Table([Row(**row) for row in part["rows"]])
        text += f"\n## {name}\n\n{part['date']}, {part['machine']}\n\n{table.markdown()}\n"
    return text


def page(parts: Parts) -> str:
    rows: dict[str, Row] = {}
    for part in parts.values():
        for row in part["rows"]:
            # Keep the first row of this name: the following row has the same result in other units.
            rows.setdefault(row["what"], Row(**row))
    text = "# What it costs, on one page\n\n"
    text += (
        "From `make bench`, and from `python bench/run.py --only apache` and `--only apache-cluster`. All figures\n"
        "are in [DETAILS.md](DETAILS.md), how\n"
    )
    text += "they are taken in [README.md](README.md). A shared machine of two slow cores: read the ratios.\n"
    for title, lines in PAGE.items():
        if not any(line.ours in rows for line in lines):
            continue
        text += f"\n## {title}\n\n| what | ours | peer | ours to peer |\n| --- | --- | --- | --- |\n"
        text += "".join(_line(line, rows) for line in lines if line.ours in rows)
    return text


def _line(line: Line, rows: Mapping[str, Row]) -> str:
    ours, peer = rows[line.ours], rows.get(line.peer)
    if peer is None:
        return f"| {line.what} | {_figure(ours)} | | |\n"
    return f"| {line.what} | {_figure(ours)} | {line.peer_name}: {_figure(peer)} | {ours.value / peer.value:.2f} |\n"


def _figure(row: Row) -> str:
    digits = 0 if row.value >= 1000 else 2
    return f"{row.value:,.{digits}f} {'' if row.unit.endswith('ratio') else row.unit}".strip()


if __name__ == "__main__":
    write_pages(load())
