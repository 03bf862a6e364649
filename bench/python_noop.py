"""Defines `format("python-noop")`, a sink of Spark's Python API that drops all rows, so that the cost of the API itself
can be measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage


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


class PythonNoop(DataSource):
    @classmethod
    def name(cls) -> str:
        return "python-noop"

    def writer(self, schema: object, overwrite: bool) -> DataSourceArrowWriter:
        return NothingOfABatch()

    def streamWriter(self, schema: object, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return NothingOfAStream()
