"""Imports those classes of PySpark's data source API that some supported versions lack, and defines stand-ins for
missing classes.

PySpark 4.2 has all of these classes. PySpark 4.1 and 4.0 have no read limits: they request the latest offset of a
stream's source without saying where the batch begins (`older_reader.py`). PySpark 4.0 has no stream writer for Arrow
batches, but passes Arrow batches to a stream writer that is also a `DataSourceArrowWriter`.
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
except ImportError:  # PySpark before 4.2
    HAS_READ_LIMITS = False

    class ReadLimit:  # type: ignore[no-redef]
        """A limit of how much a batch reads."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Lets a batch read all available records."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """Limits a batch to a number of rows."""

        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        """Limits a batch to a number of bytes."""

        max_bytes: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A stand-in without effect: Spark before 4.2 does not use this class with Python sources, so the trigger
        AvailableNow runs one batch, like Trigger.Once.
        """

else:
    HAS_READ_LIMITS = True

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
except ImportError:  # PySpark before 4.1

    class StreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef]
        """Writes a stream from Arrow batches."""
