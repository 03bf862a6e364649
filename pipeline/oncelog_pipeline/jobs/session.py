"""Opens a Spark session for one command: finds Java, uses this Python environment for the workers, and keeps Spark's
logging quiet.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.master": "local[*,3]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2m",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.sql.streaming.stopTimeout": "60s",
}
"""Default settings of the Spark session. With a master on this machine, Spark tries each task up to three times,
whereas plain local[*] never retries. Spark's own default for Arrow batches is 10,000 rows up to 64 MB; with rows of 1
KB, such large batches cost the JVM and the kernel a third more CPU.
"""
LOCAL: Final = "local"
LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Settings for a master on this machine: Spark listens on the loopback interface only."""
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
LOG_CONFIGURATION: Final = Path(__file__).with_name("log4j2.properties")
LOG_LEVELS: Final = ("OFF", "ERROR", "WARN", "INFO")


@contextmanager
def session(
    name: str, settings: Mapping[str, str], *, log_level: str = "OFF", folder: str | None = None
) -> Iterator[SparkSession]:
    """Open a Spark session, and stop it when the context manager exits. `folder` is the directory with the user's
    Python modules.

    Raises ModuleNotFoundError if PySpark is missing, JavaNotFound, and PySparkRuntimeError.
    """
    from pyspark.sql import SparkSession

    from oncelog_pipeline.spark.environment import set_environment
    from oncelog_pipeline.spark.java import set_java_home

    chosen = with_defaults(settings)
    if chosen["spark.master"].startswith(LOCAL):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        set_environment()
    else:
        set_java_home()
    if folder is not None:
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    options = [chosen.get(JAVA_OPTIONS), f"-Dlog4j2.configurationFile={LOG_CONFIGURATION.as_uri()}"]
    chosen[JAVA_OPTIONS] = " ".join(filter(None, options))
    os.environ["ONCELOG_SPARK_LOG_LEVEL"] = log_level
    builder = SparkSession.builder.appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def with_defaults(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session: those of the job, and this module's defaults for all others."""
    chosen = SETTINGS | dict(settings)
    return {**LOOPBACK, **chosen} if chosen["spark.master"].startswith(LOCAL) else chosen
