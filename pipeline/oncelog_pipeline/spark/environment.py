"""What must be set before a session of Spark is made: the Python of its workers, and a Java."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from oncelog_pipeline.spark.java import set_java_home

WORKER_PYTHON: Final = "PYSPARK_PYTHON"
LAUNCHER: Final = "oncelog-spark-python"
"""The Python that forks from a process which has imported everything: `pipeline/scripts/oncelog_spark_python.py`."""


def worker_python() -> str:
    """The command with which Spark is to start its Python processes.

    It is the launcher beside the Python that runs, which saves most of the CPU time of a start; that Python itself
    where there is none, or where this is not Linux.
    """
    launcher, python = Path(sys.executable).with_name(LAUNCHER), Path(sys.executable).with_name("python")
    is_there = sys.platform == "linux" and os.access(launcher, os.X_OK) and python.exists()
    return str(launcher) if is_there and python.samefile(sys.executable) else sys.executable


def set_environment() -> None:
    """Have Spark start its workers with the Python that runs, unless PYSPARK_PYTHON says otherwise, and find a Java.

    Without it Spark takes the first `python3` of the PATH, which is another one where no environment is activated, and
    says that there is no data source "oncelog". Raises JavaNotFound.
    """
    os.environ.setdefault(WORKER_PYTHON, worker_python())
    set_java_home()
