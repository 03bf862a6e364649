"""Records as Spark sees them: its connector's columns, and Arrow batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from oncelog import ColumnBatch

SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS: Final = "headers array<struct<key: string, value: binary>>"

MAX_ROWS: Final = 20_000
MAX_BYTES: Final = 64 << 20
"""Of one Arrow batch: larger ones save nothing, and the JVM has to hold them."""

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
        self._bytes += sum(map(len, filter(None, part.values)))

    @property
    def is_full(self) -> bool:
        return self._rows >= MAX_ROWS or self._bytes >= MAX_BYTES

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def take(self) -> pa.RecordBatch:
        """What was gathered; nothing is left."""
        parts, self._parts, self._rows, self._bytes = self._parts, [], 0, 0
        return record_batch(self._topic, self._partition, parts, includes_headers=self._includes_headers)


def record_batch(topic: str, partition: int, parts: Sequence[ColumnBatch], *, includes_headers: bool) -> pa.RecordBatch:
    """The records of all parts. Spark demands exactly this schema."""
    count = sum(len(part.offsets) for part in parts)
    columns = [
        pa.array(_joined([part.keys for part in parts]), pa.binary()),
        pa.array(_joined([part.values for part in parts]), pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array(_joined([part.offsets for part in parts]), pa.int64()),
        _timestamps(_joined([part.timestamps_ms for part in parts])),
        pa.concat_arrays([pa.repeat(pa.scalar(part.timestamp_type, pa.int32()), len(part.offsets)) for part in parts]),
    ]
    if not includes_headers:
        return pa.RecordBatch.from_arrays(columns, schema=_PLAIN)
    headers = [_headers(each) for part in parts for each in part.headers]
    return pa.RecordBatch.from_arrays([*columns, pa.array(headers, _HEADERS)], schema=_WITH_HEADERS)


def _joined(lists: Sequence[list[Any]]) -> list[Any]:
    if len(lists) == 1:
        return lists[0]
    return [each for part in lists for each in part]


def _timestamps(milliseconds: list[int]) -> pa.Array:
    """Kafka's -1, no timestamp, is null."""
    found = pc.multiply(pa.array(milliseconds, pa.int64()), 1000)
    if min(milliseconds) < 0:
        found = pc.if_else(pc.less(found, 0), None, found)
    return found.cast(_TIMESTAMP)


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> list[dict[str, Any]] | None:
    """As Spark's connector: null where there are none."""
    return [{"key": name, "value": value} for name, value in headers] or None
