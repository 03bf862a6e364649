"""Compares the sink with Spark's own connector, in turns: rows per CPU second of the JVM and all Python processes.

The measurement uses four tables of generated rows: of 100 B without keys to 4 partitions and with keys to 16, and the
same with 1 KB. Generating the rows ("nothing") and passing them to Python ("nothing, in Python") are separate results,
because all other results include this work and oncelog cannot improve it. The ratio of "nothing, in Python" to the
connector is the highest ratio that a sink in Python can reach. SMALL_ARROW_BATCHES is measured with both "nothing, in
Python" and exactly once.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any, Final

from spark_turns import CONNECTOR, rates, session, tree_of
from table import Add

from oncelog import Admin, NewTopic

TASKS: Final = 4
ROWS: Final = {100: 300_000, 1000: 80_000}
"""Size of a value in bytes -> number of rows."""
PARTITIONS: Final = {False: 4, True: 16}
"""Whether rows have keys -> number of partitions."""
WARM_UPS: Final = 2
"""The number of warm-up rounds: the JVM compiles hot code, so the first rounds of either side are slower."""
NOTHING: Final = "nothing, in Python"
SMALL_ARROW_BATCHES: Final = "spark.sql.execution.arrow.maxBytesPerBatch", "2m"
"""A setting of Spark and its value. By default one Arrow batch has 10,000 rows."""
IN_SMALL: Final = ", Arrow batches of 2 MB"
EXACTLY_ONCE: Final = "exactly once"
AT_LEAST_ONCE: Final = "at least once"
GOAL: Final = 1.0
"""The required ratio to Spark's connector."""
COST_OF_ONCE: Final = 0.85
"""The required ratio of exactly once to at least once."""
TOPIC_CONFIGS: Final = {"retention.bytes": "50000000", "segment.bytes": "20000000"}
"""Configurations of each topic, with which the gigabytes of all rounds do not fill the disk."""


def measure(add: Add, scale: int) -> None:
    with session() as found:
        if found is not None:
            _measure(add, found.spark, found.address, scale, has_peer=found.has_peer)


def _measure(add: Add, spark: Any, address: str, scale: int, *, has_peer: bool) -> None:
    """Measure the sinks; `has_peer` says whether the session has Spark's connector."""
    tree = tree_of(spark)
    for size, all_rows in ROWS.items():
        for has_keys, partitions in PARTITIONS.items():
            rows = all_rows // scale
            table = _table(spark, size, rows, has_keys=has_keys)
            what = f"sink, {size} B, {'keys' if has_keys else 'no keys'}, {partitions} partitions"
            found = rates(tree, _ways(spark, table, address, partitions, has_peer=has_peer), rows, warm_ups=WARM_UPS)
            for name, rate in found.items():
                add(f"{what}: {name}", rate, "rows/CPU s")
            add(f"{what}: to at least once", found[EXACTLY_ONCE] / found[AT_LEAST_ONCE], "ratio", at_least=COST_OF_ONCE)
            if has_peer:
                for name in (NOTHING, NOTHING + IN_SMALL):
                    add(f"{what}: {name}, to {CONNECTOR}", found[name] / found[CONNECTOR], "ratio")
            for name in (EXACTLY_ONCE, EXACTLY_ONCE + IN_SMALL, AT_LEAST_ONCE) if has_peer else ():
                add(f"{what}: {name}, to {CONNECTOR}", found[name] / found[CONNECTOR], "ratio", at_least=GOAL)


def _table(spark: Any, size: int, rows: int, *, has_keys: bool) -> Any:
    value = f"concat(lpad(cast(id as string), 8, '0'), repeat('x', {size - 8})) as value"
    keys = ["cast(id as string) as key"] if has_keys else []
    return spark.range(0, rows, 1, TASKS).selectExpr(*keys, value)


def _ways(spark: Any, table: Any, address: str, partitions: int, *, has_peer: bool) -> dict[str, Callable[[], None]]:
    def write(name: str, **options: str) -> Callable[[], None]:
        topic = f"sink-{uuid.uuid4().hex[:8]}"
        asyncio.run(_create(address, topic, partitions))
        given = {"kafka.bootstrap.servers": address, "topic": topic} | options
        return lambda: table.write.format(name).options(**given).mode("append").save()

    def in_small(do: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            spark.conf.set(*SMALL_ARROW_BATCHES)
            try:
                do()
            finally:
                spark.conf.unset(SMALL_ARROW_BATCHES[0])

        return run

    def nothing() -> None:
        table.write.format("python-noop").mode("append").save()

    exactly_once = write("oncelog")
    ways = {
        "nothing": lambda: table.write.format("noop").mode("overwrite").save(),
        NOTHING: nothing,
        NOTHING + IN_SMALL: in_small(nothing),
        EXACTLY_ONCE: exactly_once,
        EXACTLY_ONCE + IN_SMALL: in_small(exactly_once),
        AT_LEAST_ONCE: write("oncelog", delivery="at-least-once"),
    }
    return ways | ({CONNECTOR: write("kafka")} if has_peer else {})


async def _create(address: str, topic: str, partitions: int) -> None:
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, partitions, configs=TOPIC_CONFIGS)])
