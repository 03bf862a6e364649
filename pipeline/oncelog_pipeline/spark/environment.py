"""Sets the environment of a Spark session before the session is created: the Python of its workers, and a Java."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

from oncelog_pipeline.spark.java import set_java_home

WORKER_PYTHON: Final = "PYSPARK_PYTHON"
OLDEST_PYSPARK: Final = 4
"""The oldest supported major version of PySpark; older versions have no data sources in Python."""
LAUNCHER: Final = "oncelog-spark-python"
"""The name of the launcher that forks Python processes from a process which has imported everything:
`pipeline/scripts/oncelog_spark_python.py`.
"""


class UnsupportedPySpark(Exception):
    """The PySpark that is installed is too old."""


def worker_python() -> str:
    """Return the command for PYSPARK_PYTHON, with which Spark starts its Python processes.

    On Linux the command is the launcher in the directory of the running Python, which saves most of the CPU time of a
    start. On other systems, or if there is no launcher, the command is the running Python itself.
    """
    launcher, python = Path(sys.executable).with_name(LAUNCHER), Path(sys.executable).with_name("python")
    is_there = sys.platform == "linux" and os.access(launcher, os.X_OK) and python.exists()
    return str(launcher) if is_there and python.samefile(sys.executable) else sys.executable


def set_environment() -> None:
    """Set PYSPARK_PYTHON to the running Python, unless it is set, and JAVA_HOME to a Java.

    Without PYSPARK_PYTHON Spark uses the first `python3` in the PATH. If no virtual environment is activated, that
    `python3` may lack oncelog, and Spark then fails with DATA_SOURCE_NOT_FOUND. Raises UnsupportedPySpark,
    JavaNotFound.
    """
    check_version(pyspark_version())
    os.environ.setdefault(WORKER_PYTHON, worker_python())
    set_java_home()


def pyspark_version() -> str | None:
    """Return the version of the installed PySpark; None if PySpark is not installed, as may be the case on executors of
    a cluster.
    """
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return None


def check_version(version: str | None) -> None:
    """Raise UnsupportedPySpark if this version of PySpark is too old; None, for no PySpark, is accepted."""
    if version is not None and int(version.partition(".")[0]) < OLDEST_PYSPARK:
        raise UnsupportedPySpark(
            f'PySpark {version} is installed, which knows no data sources in Python, and so no format("oncelog"):'
            f" install PySpark {OLDEST_PYSPARK}.0 or newer (4.2 or newer to limit the batches of streams)"
        )
