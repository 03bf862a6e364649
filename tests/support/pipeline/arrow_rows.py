"""Rows as Arrow batches, and a simple encoder of rows whose output the vectorised encoder must equal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from oncelog.producer.packable_rows import PackableRows
from oncelog_pipeline.arrow.packed_rows import EncodedColumns, PackedRows
from oncelog_pipeline.arrow.record_columns import record_columns
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.builder import RecordBatchBuilder
from oncelog_protocol.records.record import read_records

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


class Given(NamedTuple):
    """One row of a table that a test writes."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = 0
    topic: str = "t"
    partition: int | None = None


def arrow_batch(rows: Sequence[Given], columns: Sequence[str], *, is_large: bool = False, skipped: int = 0) -> Any:
    """Return the rows as Spark would pass them, in an Arrow batch that starts `skipped` rows into its buffers."""
    rows = [Given(b"not a row", b"not its key", [("not", b"its header")])] * skipped + list(rows)
    binary = pa.large_binary() if is_large else pa.binary()
    every = {
        "value": pa.array([row.value for row in rows], binary),
        "key": pa.array([row.key for row in rows], pa.binary()),
        "headers": pa.array(
            [_headers_of(row) for row in rows],
            pa.list_(HEADER),
        ),
        "timestamp": pa.array(
            [None if row.timestamp_ms is None else row.timestamp_ms * 1000 for row in rows],
            pa.timestamp("us", tz="UTC"),
        ),
        "topic": pa.array([row.topic for row in rows], pa.string()),
        "partition": pa.array([row.partition for row in rows], pa.int32()),
    }
    return pa.record_batch({name: every[name] for name in ("value", *columns)}).slice(skipped)


def _headers_of(row: Given) -> list[dict[str, Any]] | None:
    """Return the headers of a row; a row without headers has null or an empty list."""
    found = [{"key": name, "value": value} for name, value in row.headers]
    return found if found or row.value is None else None


def packed_rows(rows: Sequence[Given], columns: Sequence[str], **options: Any) -> PackedRows:
    """Return all rows as a `PackedRows`, which encodes itself. `options` are passed to `arrow_batch`."""
    return PackedRows(EncodedColumns(record_columns(arrow_batch(rows, columns, **options))), 0, len(rows))


def plain_batches(rows: Sequence[Given], columns: Sequence[str], now_ms: int, size_limit: int) -> list[bytes]:
    """Return the record batches that `append` creates from the rows, record by record."""
    builders: list[RecordBatchBuilder] = []
    for row in rows:
        record = (
            now_ms if "timestamp" not in columns or row.timestamp_ms is None else row.timestamp_ms,
            row.key if "key" in columns else None,
            row.value,
            row.headers if "headers" in columns else (),
        )
        if not builders or builders[-1].append(*record) is None:
            builders.append(RecordBatchBuilder(size_limit))
            builders[-1].append(*record)
    return [built(builder) for builder in builders]


def packed_batches(rows: PackableRows, now_ms: int, size_limit: int) -> list[bytes]:
    """Return the record batches that rows produce which encode themselves, as in a producer."""
    builders: list[RecordBatchBuilder] = []
    done = 0
    while done < len(rows):
        count = len(builders[-1].extend_packed(partial(rows.pack, done, now_ms))) if builders else 0
        if not count:
            builders.append(RecordBatchBuilder(size_limit))
            builders[-1].append(*rows.row(done, now_ms))
            count = 1
        done += count
    return [built(builder) for builder in builders]


def built(builder: RecordBatchBuilder) -> bytes:
    builder.close()
    return bytes(builder.build())


def records_of(batches: Sequence[bytes]) -> list[tuple[int, bytes | None, bytes | None, list[Any]]]:
    """Return (timestamp in ms, key, value, headers) of each record."""
    return [
        (each.timestamp, each.key, each.value, list(each.headers))
        for batch in batches
        for each in read_records(RecordBatch(bytearray(batch)))
    ]
