"""What must be set before a session of Spark is made: the Python of its workers, and a Java."""

from __future__ import annotations

import os
import sys
from typing import Final

from oncelog_pipeline.spark.java import set_java_home

WORKER_PYTHON: Final = "PYSPARK_PYTHON"


def set_environment() -> None:
    """Have Spark start its workers with the Python that runs, unless PYSPARK_PYTHON says otherwise, and find a Java.

    Without it Spark takes the first `python3` of the PATH, which is another one where no environment is activated, and
    says that there is no data source "oncelog". Raises JavaNotFound.
    """
    os.environ.setdefault(WORKER_PYTHON, sys.executable)
    set_java_home()
