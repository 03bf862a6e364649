"""Rows per CPU second of a whole Spark: the JVM and all its Python processes, but not the broker.

Source (`spark_source.py`) and sink (`spark_sink.py`), 100 B and 1 KB, ours and Spark's own connector in turns in one
session; the median of five rounds counts (`spark_turns.py`). Spark's own connector is four jars from Maven; where there
are none of a release that this PySpark can run, it is left out, and a line says so.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any, Final

import spark_sink
import spark_source
from broker_process import BrokerProcess
from spark_turns import connector_jars
from table import Add

from oncelog import Admin, NewTopic, Producer

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent
ROUNDS: Final = 3
PARTITIONS: Final = 2
SETTINGS: Final = {
    "spark.executor.heartbeatInterval": "60s",
    "spark.network.timeout": "600s",
    # As users have it: the tests' session does without the JVM's better compiler, on which all of the peer runs.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Xss2m",
    "spark.driver.memory": "1g",
}


def measure(add: Add, scale: int) -> None:
    if not _has_pyspark():
        print("Spark is left out: make pipeline", file=sys.stderr)
        return
    sys.path.insert(0, str(ROOT / "tests" / "spark"))
    # Workers import the sink that does nothing by its name.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    from python_noop import PythonNoop
    from spark_session import started

    jars = connector_jars()
    settings = SETTINGS | ({"spark.jars": ",".join(map(str, jars))} if jars else {})
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory) / "data") as broker,
        started(settings, "local[2]") as spark,
    ):
        spark.dataSource.register(PythonNoop)
        spark_source.measure(add, spark, broker.address, f"{directory}/source", scale, has_peer=bool(jars))
        spark_sink.measure(add, spark, broker.address, scale, has_peer=bool(jars))
        _micro_batches(add, spark, broker.address, directory, 12 // scale + 2)


def _has_pyspark() -> bool:
    from importlib.util import find_spec

    return find_spec("pyspark") is not None


def _micro_batches(add: Add, spark: Any, address: str, directory: str, count: int) -> None:
    """How long one small batch takes, from trigger to trigger: of several rounds in turns the least median."""
    topic = "small"
    asyncio.run(_fill(address, topic, 100, 20 * count))
    asyncio.run(_create(address, "small-out"))

    def run(name: str, **options: str) -> float:
        table = spark.readStream.format("oncelog").options(
            **{
                "kafka.bootstrap.servers": address,
                "subscribe": topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "20",
            }
        )
        given = {"checkpointLocation": f"{directory}/{uuid.uuid4().hex}"} | options
        writer = table.load().select("value").writeStream.format(name).options(**given).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        taken = sorted(each["batchDuration"] for each in query.recentProgress if each["numInputRows"])
        return float(taken[len(taken) // 2])

    topic_options = {"kafka.bootstrap.servers": address, "topic": "small-out"}
    ways = {
        "no sink": lambda: run("noop"),
        "a sink in Python that does nothing": lambda: run("python-noop"),
        "at least once": lambda: run("oncelog", delivery="at-least-once", **topic_options),
        "exactly once": lambda: run("oncelog", **topic_options),
    }
    best = dict.fromkeys(ways, float("inf"))
    for turn in range(ROUNDS + 1):  # the first warms up
        for name, do in ways.items():
            taken = do()
            if turn:
                best[name] = min(best[name], taken)
    for name, taken in best.items():
        add(f"one micro-batch of 20 rows: {name}", taken, "ms")
    more = best["exactly once"] - best["a sink in Python that does nothing"]
    add("one micro-batch of 20 rows: what exactly once adds to the Python API", more, "ms", at_most=150)


async def _create(address: str, topic: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS)])


async def _fill(address: str, topic: str, size: int, rows: int) -> None:
    await _create(address, topic)
    async with Producer(address, batch_size=100_000) as producer:
        for partition in range(PARTITIONS):
            for first in range(0, rows // PARTITIONS, 10_000):
                count = min(10_000, rows // PARTITIONS - first)
                await producer.send_columns(topic, partition, [b"x" * size] * count)
