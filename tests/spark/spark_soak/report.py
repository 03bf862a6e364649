"""Writes the tables of docs/soak-spark.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from spark_soak.plan import Kind
from spark_soak.run import Result

HEAD = """# Soak with Spark

Written by `make soak-spark`. One query sums orders by window and customer, with a watermark, from topic to topic;
source and sink are `format("oncelog")`, with delivery `exactly-once`. Three brokers keep three replicas of everything.
A writer (librdkafka) commits some 50 orders a second, each round of twelve in a transaction, aborts one round in eight,
and sends orders that come a day too late. All the while `kill -9` strikes, at random moments:

- **drivers**: the JVM and its Python process, and the next one starts on the same checkpoint; a quarter of them die so
  soon that some have not finished a batch;
- **workers**: any Python process that the JVM has started;
- **brokers**: one of the three, away for up to five seconds.

In the end librdkafka reads both topics with `read_committed`. Each window holds the numbers of its orders, so that the
judge sees each order: all windows must be there once, with exactly the orders that the source holds, and no order that
was aborted or came too late. A run in which anything is wrong, or that ran out of time, keeps its directory. `python -m
spark_soak --seed N` has the same deaths in the same order.
"""


def page(results: Sequence[Result]) -> Iterator[str]:
    yield from run_table(results)
    yield ""
    yield "Workers that died, by what they ran (of the package `pyspark`):"
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
