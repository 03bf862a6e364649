"""`format("python-noop")`: a sink that drops all rows, and a source that repeats one Arrow batch which was made
beforehand. Both use Spark's Python API. They are used to measure the cost of that API itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from oncelog_pipeline.spark.source_columns import MAX_BYTES, MAX_ROWS, SCHEMA

COLUMNS: Final = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
    }
)
"""The schema SCHEMA, in Arrow's types."""


class Nothing:
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, *_: object) -> None:
        pass

    def abort(self, *_: object) -> None:
        pass


class NothingOfABatch(Nothing, DataSourceArrowWriter):
    pass


class NothingOfAStream(Nothing, DataSourceStreamArrowWriter):
    pass


class Repeated:
    """A source whose options are `rows`, `size` and `partitions`: it returns that many rows, of `size` bytes each,
    divided among that many partitions.
    """

    def __init__(self, options: dict[str, str]) -> None:
        self._rows, self._size, self._partitions = (int(options[each]) for each in ("rows", "size", "partitions"))

    def _parts(self) -> list[InputPartition]:
        return [InputPartition(self._rows // self._partitions) for _ in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left = partition.value
        made = _batch(min(left, MAX_ROWS, MAX_BYTES // self._size), self._size)
        while left:
            count = min(left, made.num_rows)
            yield made if count == made.num_rows else made.slice(0, count)
            left -= count


class RepeatedBatch(Repeated, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return self._parts()


class RepeatedStream(Repeated, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """All rows are one batch of the stream."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {"rows": self._rows}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return self._parts()


class PythonNoop(DataSource):
    @classmethod
    def name(cls) -> str:
        return "python-noop"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: object) -> DataSourceReader:
        return RepeatedBatch(self.options)

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802
        return RepeatedStream(self.options)

    def writer(self, schema: object, overwrite: bool) -> DataSourceArrowWriter:
        return NothingOfABatch()

    def streamWriter(self, schema: object, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return NothingOfAStream()


def _batch(rows: int, size: int) -> pa.RecordBatch:
    """Return an Arrow batch of records without keys, with values of `size` bytes. It has the columns that oncelog's
    source returns.
    """
    return pa.RecordBatch.from_pydict(
        {
            "key": [None] * rows,
            "value": [b"x" * size] * rows,
            "topic": ["topic"] * rows,
            "partition": [0] * rows,
            "offset": list(range(rows)),
            "timestamp": [1_700_000_000_000_000] * rows,
            "timestampType": [0] * rows,
        },
        COLUMNS,
    )
