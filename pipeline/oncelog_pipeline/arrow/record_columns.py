"""Converts Arrow batches of a table to the fields of records, one column for each field."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from oncelog.clock import now_ms
from oncelog.producer.columns import MAX_TIMESTAMP
from oncelog_pipeline.arrow.buffers import is_valid, numbers_of, taken
from oncelog_pipeline.arrow.headers import check_headers
from oncelog_pipeline.arrow.without_pandas import arrow_array, zero


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The fields of records, one column for each field; None if the table does not have that column."""

    values: pa.Array | pa.ChunkedArray
    """The values of the records, of type binary or large binary. They are in several chunks until their rows are
    divided, because copying them into one array would take much of the CPU of a task.
    """
    keys: pa.Array | None
    """The keys of the records, of the same type as `values`."""
    headers: pa.Array | None
    """For each row a list of structs with the name and value of a header. No header name is null."""
    topics: pa.Array | None
    partitions: pa.Array | None
    timestamps_ms: Any = None
    """The timestamp of each record in milliseconds, as an int64 array; None if the table has no timestamps."""

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Any) -> RecordColumns:
        """Return the columns with only these rows (an int64 array of row numbers), in this order and without topics.
        The values of the result are one array.
        """
        chosen, values, keys = arrow_array(rows, pa.int64()), self.values, self.keys
        if isinstance(values, pa.ChunkedArray):
            values = taken(values.chunks, rows)
            keys = None if keys is None else keys.cast(values.type)
        else:
            values = values.take(chosen)
        return RecordColumns(
            values,
            None if keys is None else keys.take(chosen),
            None if self.headers is None else self.headers.take(chosen),
            None,
            None if self.partitions is None else self.partitions.take(chosen),
            None if self.timestamps_ms is None else self.timestamps_ms[rows],
        )

    def in_one_piece(self) -> RecordColumns:
        """Return the columns with the values in one array."""
        return self if isinstance(self.values, pa.Array) else replace(self, values=_whole(self.values))


def record_columns(table: pa.RecordBatch | pa.Table) -> RecordColumns:
    """Convert one Arrow batch of the table to write, or several. Raises ValueError for a header without a name, and for
    a timestamp outside the range that a record can have.
    """
    columns = dict(zip(table.schema.names, table.columns, strict=True))
    values = _binary(columns.pop("value"))
    columns = {name: _whole(column) for name, column in columns.items()}
    keys = _binary(columns["key"]) if "key" in columns else None
    if keys is not None and keys.type != values.type:
        values, keys = values.cast(pa.large_binary()), keys.cast(pa.large_binary())
    if "headers" in columns:
        check_headers(columns["headers"])
    return RecordColumns(
        values,
        keys,
        columns.get("headers"),
        columns.get("topic"),
        columns.get("partition"),
        _milliseconds(columns["timestamp"]) if "timestamp" in columns else None,
    )


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, with a copy of its values if it has several chunks."""
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _binary(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Cast a string column to binary, which keeps its UTF-8 bytes; return other columns unchanged."""
    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    return column.cast(pa.large_binary()) if pa.types.is_large_string(column.type) else column


def _milliseconds(column: pa.Array) -> Any:
    """Convert a column of timestamps to milliseconds; rows without a timestamp get the present time."""
    # Round down, as Spark does: one microsecond before 1970 becomes millisecond -1.
    found = numbers_of(column.cast(pa.int64()).fill_null(zero(pa.int64()))) // 1000
    if column.null_count:
        found = np.where(is_valid(column), found, now_ms())
    if len(found) and int(found.min()) < 0:
        raise ValueError(f"timestamp {int(found.min())}: must be from 0 to {MAX_TIMESTAMP}")
    return found
