"""What a table that is written may have of columns, and Arrow batches of it as columns of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from oncelog.clock import now_ms
from oncelog_pipeline.options.reading import OptionError
from oncelog_protocol.records.columns import NO_HEADERS

VALUE: Final = "value"
COLUMNS: Final = ("key", VALUE, "headers", "topic", "partition", "timestamp")
_KINDS: Final = {
    "key": "string or binary",
    VALUE: "string or binary",
    "headers": "array<struct<key: string, value: binary>>",
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp",
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises OptionError for a table that is none of records. `topic` is the option."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            near = get_close_matches(field.name, COLUMNS, n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise OptionError(f"column {field.name!r} is none of {', '.join(COLUMNS)}{hint} Select or rename it")
        if not _fits(field.name, field.dataType):
            told = field.dataType.simpleString()
            raise OptionError(f"column {field.name!r} is {told}, and must be {_KINDS[field.name]}: cast it")
    names = schema.fieldNames()
    if VALUE not in names:
        raise OptionError('the column "value" is missing: to_json(struct(*)) AS value, for one, makes it of all others')
    if topic is None and "topic" not in names:
        raise OptionError('no topic: set .option("topic", ...) or give the table a column "topic"')


def _fits(name: str, kind: DataType) -> bool:
    if name in ("key", VALUE):
        return isinstance(kind, (StringType, BinaryType))
    if name == "topic":
        return isinstance(kind, StringType)
    if name == "partition":
        return isinstance(kind, IntegerType)
    if name == "timestamp":
        return isinstance(kind, TimestampType)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), (VALUE, BinaryType)]


@dataclass(slots=True)
class RecordColumns:
    """Of each record its fields, a list for each; None for a column that the table does not have."""

    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: list[Sequence[tuple[str, bytes | None]]] | None
    topics: list[str | None] | None
    partitions: list[int | None] | None
    timestamps_ms: list[int] | None = None

    def only(self, rows: Sequence[int]) -> RecordColumns:
        """These rows, without where they go."""
        return RecordColumns(
            [self.values[row] for row in rows],
            None if self.keys is None else [self.keys[row] for row in rows],
            None if self.headers is None else [self.headers[row] for row in rows],
            None,
            None,
            None if self.timestamps_ms is None else [self.timestamps_ms[row] for row in rows],
        )


def record_columns(batch: pa.RecordBatch) -> RecordColumns:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    headers = columns.get("headers")
    return RecordColumns(
        _bytes(columns[VALUE]),
        _bytes(columns["key"]) if "key" in columns else None,
        None if headers is None else [_headers(each) for each in headers.to_pylist()],
        columns["topic"].to_pylist() if "topic" in columns else None,
        columns["partition"].to_pylist() if "partition" in columns else None,
        _milliseconds(columns["timestamp"]) if "timestamp" in columns else None,
    )


def _milliseconds(column: pa.Array) -> list[int]:
    """Without one, the time at which it is sent."""
    found = [None if us is None else us // 1000 for us in column.cast(pa.int64()).to_pylist()]
    now = now_ms()
    return [now if each is None else each for each in found]


def _bytes(column: pa.Array) -> list[bytes | None]:
    """UTF-8 of a string."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    found: list[bytes | None] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def _headers(headers: list[dict[str, Any] | None] | None) -> Sequence[tuple[str, bytes | None]]:
    """Raises ValueError for a header without a name."""
    if not headers:
        return NO_HEADERS
    if any(header is None or header["key"] is None for header in headers):
        raise ValueError('column "headers": a header without a key (null)')
    return [(header["key"], header[VALUE]) for header in headers if header is not None]
