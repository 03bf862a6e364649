"""Rows in Arrow columns that encode themselves as records: implements `oncelog.producer.packable_rows.PackableRows`.

A record consists of five parts: the head (length, attributes, timestamp, offset, size of the key), the key, the size of
the value, the value, and the headers. Arrow joins the columns of these five parts; the content of the joined column is
all encoded records, one after another. Only the heads depend on the record batch that contains the records, so the
other four columns are computed once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncelog.producer.columns import Columns, Row
from oncelog_pipeline.arrow.buffers import sizes_of
from oncelog_pipeline.arrow.headers import encoded_headers, header_counts, headers_of_row
from oncelog_pipeline.arrow.record_columns import RecordColumns
from oncelog_pipeline.arrow.row_digest import digest_of_columns
from oncelog_pipeline.arrow.varints import Codes, counted, joined, varints
from oncelog_pipeline.arrow.whole_batches import RecordParts, WholeBatches
from oncelog_pipeline.arrow.without_pandas import arrow_array, binary_scalar, zero
from oncelog_pipeline.sink.digest import Digest
from oncelog_protocol.records.packing import ATTRIBUTES, NO_HEADERS, NULL, Packed
from oncelog_protocol.records.varint import encode_varlong

LEAST_SHARE: Final = 0.25
"""Rows that fill less than this share of a batch are added to other batches of their partition (`PackedRows.pack`),
because each batch costs the producer and the broker some time, whatever its size.
"""
PIECE: Final = 1024
"""The number of rows that `pieces` converts to Python objects in each step."""
NOTHING: Final = Packed(b"", (), 0)


class EncodedColumns:
    """Columns of records, and those parts of their encoding that do not depend on the record batch."""

    def __init__(self, columns: RecordColumns) -> None:
        self.columns = columns
        count = len(columns)
        self.kind = columns.values.type
        value_sizes = sizes_of(columns.values)
        value_codes = varints(value_sizes)
        self.value_heads = joined([value_codes], count, self.kind)
        sizes = len(ATTRIBUTES) + value_codes.widths + np.maximum(value_sizes, 0)
        if columns.keys is None:
            self.key_codes: Codes | bytes = NULL
            sizes += len(NULL)
        else:
            key_sizes = sizes_of(columns.keys)
            self.key_codes = key_codes = varints(key_sizes)
            sizes += np.maximum(key_sizes, 0) + key_codes.widths
        if columns.headers is None:
            self.tails: Any = binary_scalar(NO_HEADERS, self.kind)
            sizes += len(NO_HEADERS)
        else:
            self.tails = encoded_headers(columns.headers, self.kind)
            sizes += sizes_of(self.tails)
        self.sizes = sizes
        """An array with the encoded size of each record in bytes, not counting its length, timestamp and offset fields.
        """
        self.ends: Any = np.zeros(count + 1, np.int64)
        """Item i is the total size of all records before record i; the last item is the total size of all records."""
        np.cumsum(sizes, out=self.ends[1:])
        self.bounds: set[int] = set()
        """The first row of each PackedRows of these columns, and its last row plus one."""
        self._whole: tuple[tuple[int, int], WholeBatches] | None = None

    def whole_batches(self, size_limit: int) -> WholeBatches:
        """Return the rows of all PackedRows, divided into batches. The result is cached."""
        key = size_limit, len(self.bounds)
        if self._whole is None or self._whole[0] != key:
            parts = RecordParts(self.sizes, self.ends, self.key_codes, self.columns.timestamps_ms, self.kind)
            self._whole = key, WholeBatches(parts, sorted(self.bounds), size_limit)
        return self._whole[1]


class PackedRows:
    """The rows from number `first` up to `end` (excluded), all of which are written to one partition. The constructor
    raises ValueError if the range is empty.
    """

    def __init__(self, encoded: EncodedColumns, first: int, end: int) -> None:
        if first >= end:
            raise ValueError("no rows")
        self._encoded = encoded
        self._first = first
        self._end = end
        encoded.bounds |= {first, end}

    def __len__(self) -> int:
        return self._end - self._first

    def batches(self, now_ms: int, size_limit: int) -> Iterator[Packed] | None:
        """Encode the rows as whole batches; None for few rows. Implements `PackableRows.batches`."""
        ends = self._encoded.ends
        if int(ends[self._end] - ends[self._first]) < size_limit * LEAST_SHARE:
            return None
        return self._batches(now_ms, self._encoded.whole_batches(size_limit))

    def _batches(self, now_ms: int, whole: WholeBatches) -> Iterator[Packed]:
        times = self._encoded.columns.timestamps_ms
        for number in range(bisect_left(whole.starts, self._first), bisect_left(whole.starts, self._end)):
            first, end = whole.starts[number], whole.starts[number + 1]
            data = self._joined(whole.heads(first, end), first, end)[: whole.size(number)]
            if data.readonly:  # Arrow promises nothing; up to release 26 the buffer of a new array is writable
                data = memoryview(bytearray(data))
            packed_times = [now_ms] * (end - first) if times is None else times[first:end].tolist()
            yield Packed(data, packed_times, now_ms if times is None else max(packed_times))

    def pack(self, first: int, now_ms: int, first_offset: int, base_timestamp_ms: int, room: int) -> Packed:
        """Encode the rows from `first` on that fit into `room` bytes; implements `PackableRows.pack`."""
        encoded, first = self._encoded, self._first + first
        # The rows from `end` on do not fit into the batch, because their keys, values and headers alone are too large.
        end = int(encoded.ends.searchsorted(encoded.ends[first] + room, side="right")) - 1
        end = min(end, self._end)
        if end <= first:
            return NOTHING
        times = encoded.columns.timestamps_ms
        time_codes: Codes | bytes
        if times is None:
            time_codes = encode_varlong(now_ms - base_timestamp_ms)
            time_sizes: Any = len(time_codes)
        else:
            time_codes = varints(times[first:end] - base_timestamp_ms)
            time_sizes = time_codes.widths
        offset_codes = counted(first_offset, end - first)
        sizes = encoded.sizes[first:end] + (time_sizes + offset_codes.widths)
        size_codes = varints(sizes)
        ends = (sizes + size_codes.widths).cumsum()
        count = int(ends.searchsorted(room, side="right"))
        if not count:
            return NOTHING
        end = first + count
        codes = [
            size_codes.only(0, count),
            ATTRIBUTES,
            time_codes if isinstance(time_codes, bytes) else time_codes.only(0, count),
            offset_codes.only(0, count),
            encoded.key_codes if isinstance(encoded.key_codes, bytes) else encoded.key_codes.only(first, end),
        ]
        data = self._joined(joined(codes, count, encoded.kind), first, end)
        packed_times = [now_ms] * count if times is None else times[first:end].tolist()
        return Packed(data[: int(ends[count - 1])], packed_times, max(packed_times) if times is not None else now_ms)

    def _joined(self, heads: pa.Array, first: int, end: int) -> memoryview:
        encoded = self._encoded
        keys, values, tails = encoded.columns.keys, encoded.columns.values, encoded.tails
        parts = [heads, encoded.value_heads[first:end], values[first:end]]
        if keys is not None:
            parts.insert(1, keys[first:end])
        parts.append(tails if isinstance(tails, pa.Scalar) else tails[first:end])
        nothing = binary_scalar(b"", encoded.kind)
        found = pc.binary_join_element_wise(*parts, nothing, null_handling="replace")
        return memoryview(found.buffers()[2])

    def row(self, index: int, now_ms: int) -> Row:
        """Return one row, for starting a batch; implements `PackableRows.row`."""
        columns, index = self._encoded.columns, self._first + index
        return (
            now_ms if columns.timestamps_ms is None else int(columns.timestamps_ms[index]),
            None if columns.keys is None else columns.keys[index].as_py(),
            columns.values[index].as_py(),
            () if columns.headers is None else headers_of_row(columns.headers[index].as_py()),
        )

    def pieces(self) -> Iterator[Columns]:
        """Yield all rows as Python objects, PIECE rows at a time; implements `PackableRows.pieces`."""
        columns = self._encoded.columns
        for first in range(self._first, self._end, PIECE):
            end = min(first + PIECE, self._end)
            yield Columns(
                _objects(columns.values[first:end]),
                None if columns.keys is None else _objects(columns.keys[first:end]),
                None if columns.timestamps_ms is None else columns.timestamps_ms[first:end].tolist(),
                None if columns.headers is None else list(map(headers_of_row, columns.headers[first:end].to_pylist())),
            )

    def digest(self, topic: str) -> Digest:
        """Return the digest that these rows have in this topic; implements `DigestedRows.digest`."""
        columns, rows = self._encoded.columns, slice(self._first, self._end)
        headers = None
        if columns.headers is not None:
            counts = arrow_array(header_counts(columns.headers[rows]), pa.int64())
            nothing = binary_scalar(b"", self._encoded.kind)
            headers = pc.if_else(pc.greater(counts, zero(pa.int64())), self._encoded.tails[rows], nothing)
        keys = None if columns.keys is None else columns.keys[rows]
        return digest_of_columns(topic, keys, columns.values[rows], headers)


def _objects(column: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = column.to_numpy(zero_copy_only=False).tolist()
    return found
