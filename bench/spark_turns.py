"""Ways of doing the same work with Spark, in turns, by their CPU seconds: what the parts of `spark.py` measure with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

from maven import Unavailable
from process_tree import ProcessTree
from spark_connector import connector

TURNS: Final = 5
CONNECTOR: Final = "Spark's connector"


def tree_of(spark: Any) -> ProcessTree:
    """The JVM of a session and the Python processes that it has started."""
    return ProcessTree([spark.sparkContext._gateway.proc.pid])


def rates(tree: ProcessTree, ways: dict[str, Callable[[], None]], rows: int, *, warm_ups: int = 1) -> dict[str, float]:
    """Rows per CPU second of each way: the median of TURNS rounds, in turns, after `warm_ups` rounds."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(warm_ups + TURNS):
        for name, do in ways.items():
            taken = tree.cpu_of(do)
            if turn >= warm_ups:
                spent[name].append(taken)
    return {name: rows / median(taken) for name, taken in spent.items()}


def connector_jars() -> list[Path]:
    """Those of Spark's own Kafka connector; none where it cannot be had, which a line on standard error says."""
    try:
        return connector()
    except Unavailable as error:
        print(f"left out: {error}", file=sys.stderr)
        return []
