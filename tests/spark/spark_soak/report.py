"""Writes the tables of docs/soak-spark.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from spark_soak.plan import Kind
from spark_soak.run import Result

HEAD = """# Soak with Spark

Written by `make soak-spark`. One query sums orders by window and customer, with a watermark, from topic to topic;
source and sink are `format("oncelog")`, with delivery `exactly-once`. Three brokers keep three replicas of every
partition. A writer (librdkafka) commits about 50 orders per second in transactions of twelve orders, aborts one
transaction in eight, and also sends orders that are a day too late. Meanwhile `kill -9` strikes at random moments:

- **drivers**: the JVM and its Python process are killed, and the next driver starts with the same checkpoint; a
  quarter of the drivers die so early that some have not finished a batch;
- **workers**: any Python process that the JVM has started is killed;
- **brokers**: one of the three brokers is killed, and stays down for up to five seconds.

At the end librdkafka reads both topics with `read_committed`. Each window contains the numbers of its orders, so that
the judge can check each order: every window must exist once, with exactly the orders of the source, and without any
order that was aborted or too late. A run that finds an error, or runs out of time, keeps its directory. `python -m
spark_soak --seed N` repeats the same kills in the same order.
"""


def page(results: Sequence[Result]) -> Iterator[str]:
    yield from run_table(results)
    yield ""
    yield "Killed workers by the module of the package `pyspark` that they ran:"
    yield ""
    yield from worker_table(results)


def run_table(results: Sequence[Result]) -> Iterator[str]:
    yield (
        "| seed | PySpark | minutes | drivers | workers | brokers | query failed | batches | orders | aborted | late"
        " | windows | lost | twice | wrong |"
    )
    yield "|" + "---:|" * 15
    for result in results:
        verdict = result.verdict
        counts = [result.deaths[kind] for kind in (Kind.DRIVER, Kind.WORKER, Kind.BROKER)]
        cells: list[object] = [
            result.seed,
            result.pyspark,
            f"{result.minutes:.0f}",
            *counts,
            result.failures,
            f"{result.batches:,}",
        ]
        if verdict is None:
            cells += ["not judged", *[""] * 6]
        else:
            cells += [f"{verdict.rows:,}", f"{result.aborted:,}", result.late, f"{verdict.windows:,}"]
            cells += [_both(verdict.lost, verdict.rows_lost), _both(verdict.twice, verdict.rows_twice), verdict.wrong]
        yield "| " + " | ".join(map(str, cells)) + " |"


def _both(windows: int, rows: int) -> str:
    return f"{windows} ({rows} orders)" if rows else str(windows)


def worker_table(results: Sequence[Result]) -> Iterator[str]:
    died: Counter[str] = Counter()
    for result in results:
        died.update(result.workers)
    yield "| module | deaths |"
    yield "|---|---:|"
    for module, count in sorted(died.items()):
        yield f"| `{module}` | {count} |"
