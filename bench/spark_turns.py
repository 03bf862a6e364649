"""Provides a Spark session with a broker. Measures, in turns, the CPU seconds of several ways of doing the same work in
this session.

Spark's own Kafka connector consists of four jars from Maven; if no release fits this PySpark, the connector is skipped,
and a line says so. The JVM has both compilers, as for users, and the session uses the Python that `set_environment()`
chooses.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from broker_process import BrokerProcess
from maven import Unavailable
from process_tree import ProcessTree
from spark_connector import connector

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent
TURNS: Final = 5
CONNECTOR: Final = "Spark's connector"
SETTINGS: Final = {
    "spark.executor.heartbeatInterval": "60s",
    "spark.network.timeout": "600s",
    "spark.driver.memory": "1g",
    # These options do not disable the JVM's second compiler, as tests do, because users' queries run with it.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Xss2m",
    "spark.ui.showConsoleProgress": "false",
}


class Session(NamedTuple):
    """A session; `directory` is for checkpoints, and `has_peer` says whether Spark's own connector is available."""

    spark: Any
    address: str
    directory: str
    has_peer: bool


@contextmanager
def session() -> Iterator[Session | None]:
    """Yield a session; None if PySpark is not installed."""
    if find_spec("pyspark") is None:
        print("Spark is skipped: make pipeline", file=sys.stderr)
        yield None
        return
    sys.path.insert(0, str(ROOT / "tests" / "spark"))
    # Workers import the sink of python_noop.py by its name.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    from python_noop import PythonNoop
    from spark_session import started

    from oncelog_pipeline.spark.environment import worker_python

    jars = connector_jars()
    settings = SETTINGS | ({"spark.jars": ",".join(map(str, jars))} if jars else {})
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory) / "data") as broker,
        started(settings, "local[2]", worker_python()) as spark,
    ):
        spark.dataSource.register(PythonNoop)
        yield Session(spark, broker.address, directory, bool(jars))


def tree_of(spark: Any) -> ProcessTree:
    """Return the JVM of a session and the Python processes that it has started, including the process from which they
    are forked.
    """
    return ProcessTree(spark.sparkContext._gateway.proc.pid, "oncelog_pipeline.spark.template_process")


def rates(tree: ProcessTree, ways: dict[str, Callable[[], None]], rows: int, *, warm_ups: int = 1) -> dict[str, float]:
    """Return the rows per CPU second of each way: the median of TURNS rounds, in turns, after `warm_ups` rounds."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(warm_ups + TURNS):
        for name, do in ways.items():
            taken = tree.cpu_of(do)
            if turn >= warm_ups:
                spent[name].append(taken)
    return {name: rows / median(taken) for name, taken in spent.items()}


def connector_jars() -> list[Path]:
    """Return the jars of Spark's own Kafka connector; none if they cannot be downloaded, which a line on standard error
    reports.
    """
    try:
        return connector()
    except Unavailable as error:
        print(f"left out: {error}", file=sys.stderr)
        return []
