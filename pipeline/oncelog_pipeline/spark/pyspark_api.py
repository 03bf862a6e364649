"""The classes of PySpark's data source API that not every supported version has, and stand-ins where they are missing.

PySpark 4.2 has all of them. 4.1 and 4.0 have no read limits: a stream's source is asked for the latest offset without
being told where the batch begins (`older_reader.py`). 4.0 has no stream writer for Arrow batches, but hands them
to a stream writer that is a `DataSourceArrowWriter`, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyspark
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

__all__ = [
    "HAS_READ_LIMITS",
    "PYSPARK",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
]

PYSPARK: Final[str] = pyspark.__version__

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before 4.2
    HAS_READ_LIMITS = False

    class ReadLimit:  # type: ignore[no-redef]
        """How much a batch reads at most."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Everything that there is."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """A limit of rows."""

        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        """A limit of bytes."""

        max_bytes: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stand-in. Spark before 4.2 does not use it with Python sources: AvailableNow then runs one batch, like
        Trigger.Once."""

else:
    HAS_READ_LIMITS = True

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
except ImportError:  # before 4.1

    class StreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef]
        """Writes a stream from Arrow batches."""
