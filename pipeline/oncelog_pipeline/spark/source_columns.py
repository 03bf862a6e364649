"""Records as Spark sees them: its connector's columns, and Arrow batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from oncelog import ColumnBatch
from oncelog_pipeline.spark.value_column import value_column, values_size

SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS: Final = "headers array<struct<key: string, value: binary>>"

MAX_ROWS: Final = 20_000
MAX_BYTES: Final = 4 << 20
"""Of one Arrow batch: on both sides of the socket the memory of small ones is used again, that of large ones is fetched
from the kernel, page by page, for each."""

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS: Final = pa.list_(pa.field("element", _HEADER))
_FIELDS: Final = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", _TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]
_PLAIN: Final = pa.schema(_FIELDS)
_WITH_HEADERS: Final = pa.schema([*_FIELDS, pa.field("headers", _HEADERS)])


def schema(*, includes_headers: bool) -> str:
    """What Spark is told."""
    return f"{SCHEMA}, {HEADERS}" if includes_headers else SCHEMA


class BatchBuilder:
    """Gathers records of one partition until there are enough for an Arrow batch."""

    def __init__(self, topic: str, partition: int, *, includes_headers: bool) -> None:
        self._topic = topic
        self._partition = partition
        self._includes_headers = includes_headers
        self._parts: list[ColumnBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, part: ColumnBatch) -> None:
        self._parts.append(part)
        self._rows += len(part.offsets)
        self._bytes += values_size(part)

    @property
    def is_full(self) -> bool:
        return self._rows >= MAX_ROWS or self._bytes >= MAX_BYTES

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def take(self) -> pa.RecordBatch:
        """What was gathered; nothing is left."""
        parts, self._parts, size, self._rows, self._bytes = self._parts, [], self._bytes, 0, 0
        return record_batch(self._topic, self._partition, parts, size, includes_headers=self._includes_headers)


def record_batch(
    topic: str, partition: int, parts: Sequence[ColumnBatch], values_bytes: int, *, includes_headers: bool
) -> pa.RecordBatch:
    """The records of all parts. Spark demands exactly this schema."""
    count = sum(len(part.offsets) for part in parts)
    columns = [
        _keys(_joined([part.keys for part in parts])),
        value_column(parts, values_bytes),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        _offsets(parts, count),
        _timestamps(_joined([part.timestamps_ms for part in parts])),
        _timestamp_types(parts, count),
    ]
    if not includes_headers:
        return pa.RecordBatch.from_arrays(columns, schema=_PLAIN)
    headers = [_headers(each) for part in parts for each in part.headers]
    return pa.RecordBatch.from_arrays([*columns, pa.array(headers, _HEADERS)], schema=_WITH_HEADERS)


def _joined(lists: Sequence[list[Any]]) -> list[Any]:
    if len(lists) == 1:
        return lists[0]
    return [each for part in lists for each in part]


def _keys(keys: list[bytes | None]) -> pa.Array:
    are_null = keys[0] is None and keys.count(None) == len(keys)
    return pa.nulls(len(keys), pa.binary()) if are_null else pa.array(keys, pa.binary())


def _offsets(parts: Sequence[ColumnBatch], count: int) -> pa.Array:
    first, last = parts[0].offsets[0], parts[-1].offsets[-1]
    if last - first == count - 1:  # they only grow, so none is missing
        return pa.array(np.arange(first, last + 1, dtype=np.int64))
    return pa.array(_joined([part.offsets for part in parts]), pa.int64())


def _timestamp_types(parts: Sequence[ColumnBatch], count: int) -> pa.Array:
    first = parts[0].timestamp_type
    if all(part.timestamp_type == first for part in parts):
        return pa.repeat(pa.scalar(first, pa.int32()), count)
    return pa.array([part.timestamp_type for part in parts for _ in part.offsets], pa.int32())


def _timestamps(milliseconds: list[int]) -> pa.Array:
    """Kafka's -1, no timestamp, is null."""
    found = np.array(milliseconds, np.int64)
    is_none = found < 0
    found *= 1000
    return pa.array(found, pa.int64(), mask=is_none if is_none.any() else None).view(_TIMESTAMP)


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> list[dict[str, Any]] | None:
    """As Spark's connector: null where there are none."""
    return [{"key": name, "value": value} for name, value in headers] or None
