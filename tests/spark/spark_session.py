"""Creates the small Spark session of all tests, and of the processes that they kill."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from oncelog_pipeline.spark.java import set_java_home

HERE = Path(__file__).parent
MASTER = "local[2,3]"
"""Two tasks run at a time, and each is tried three times; plain local[2] would never retry a task."""
MEMORY = "512m"
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss2m"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": MEMORY,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "60s",
}


@contextmanager
def started(
    settings: Mapping[str, str] | None = None, master: str = MASTER, python: str = sys.executable
) -> Iterator[SparkSession]:
    """Start a session whose workers use this environment, are started by `python`, and find the modules of this
    directory.
    """
    set_java_home()
    os.environ["PYSPARK_PYTHON"] = python
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master(master).appName("oncelog-tests")
    for name, value in (SETTINGS | dict(settings or {})).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    os.environ["PYSPARK_PYTHON"] = sys.executable  # other processes that a test starts read this environment variable
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
