"""Decodes the records of a batch to columns: one list for each field. Consumers and tables build their rows from
columns.

The module has two decoders, which give the same result. The general decoder decodes field by field in straight-line
code, with one- and two-byte varints inline, because a function call for each field would double the time. However,
producers often write runs of records that differ only in content, with equal lengths and consecutive offsets. The bytes
of such a run form a matrix with a row per record, so one strided slice reads the same field of all records. This second
decoder needs a quarter of the general decoder's time. The module `record` describes the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Final

from oncelog_protocol.light_classes import dataclass
from oncelog_protocol.records.batch import Buffer, CorruptBatch, RecordBatch
from oncelog_protocol.records.compression import Compression, RecordsTooLarge, decompress
from oncelog_protocol.records.varint import read_varint, read_varlong

MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of one decompressed batch, because a few bytes of zstd can become gigabytes."""
MIN_RECORD_SIZE: Final = 7
"""Size of the smallest record: one byte for each of the seven fields of a record without key, value and headers."""

NULL_LENGTH: Final = -1
NULL_BYTE: Final = 1
"""The zig-zag varint of -1, which stands for a null key or value."""

Headers = Sequence[tuple[str, bytes | None]]
NO_HEADERS: Final[Headers] = ()

# Zig-zag varints of non-negative numbers. A one-byte varint is even and below 128; in a two-byte varint, the first byte
# is even and at least 128, and the second is below 128.
ONE_BYTE: Final = bytes(range(0, 128, 2))
FIRST_OF_TWO: Final = bytes(range(128, 256, 2))
SECOND_OF_TWO: Final = bytes(range(128))

MAX_ONE_BYTE: Final = 64
MAX_TWO_BYTES: Final = 8192
TWO_BYTES_LOW: Final = FIRST_OF_TWO * 128
TWO_BYTES_HIGH: Final = b"".join(bytes((high,)) * 64 for high in range(128))
"""Tables of the first byte and the second byte of two-byte varints, indexed by the number, up to 8191. Only numbers of
64 and above have two-byte varints.
"""

MIN_RUN: Final = 8
"""Minimum number of records in a run; after a shorter run, the rest of the batch is decoded record by record."""


@dataclass(slots=True)
class RecordColumns:
    """Decoded records as columns, in offset order; all lists have the same length. If a record is malformed, `error` is
    set, and the columns end before that record.
    """

    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    error: CorruptBatch | None = None


def read_columns(batch: RecordBatch, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES) -> RecordColumns:
    """Return the records of `batch`; with log append time, all records have the batch's max timestamp.

    Raises only CorruptBatch, if the records cannot be decompressed. At the first malformed record the decoding stops,
    and `error` has the reason.
    """
    data = records_data(batch, max_decompressed_bytes)
    columns = RecordColumns()
    try:
        _decode(batch, data, columns)
    except IndexError:
        columns.error = CorruptBatch("a record runs over the end of the batch")
    except CorruptBatch as error:
        columns.error = error
    if batch.is_log_append_time:
        columns.timestamps = [batch.max_timestamp] * len(columns.offsets)
    return columns


def records_data(batch: RecordBatch, max_bytes: int) -> bytes:
    """Return the decompressed records, after the checks that need only the header. Raises CorruptBatch."""
    _check_count(batch)
    data = decompress(batch.compression, batch.payload, max_bytes=max_bytes)
    _check_fits(batch, len(data))
    return data


def records_view(batch: RecordBatch, max_bytes: int) -> bytes | memoryview:
    """Return the decompressed records, after the checks that need only the header; if the records are not compressed,
    the result is a view of the batch. Raises CorruptBatch.
    """
    if batch.compression != Compression.NONE:
        return records_data(batch, max_bytes)
    _check_count(batch)
    view = batch.payload
    if len(view) > max_bytes:
        raise RecordsTooLarge(f"{len(view)} bytes of records, the limit is {max_bytes}")
    _check_fits(batch, len(view))
    return view


def _check_count(batch: RecordBatch) -> None:
    """Check the number of records against the last offset delta. Raises CorruptBatch."""
    count, last_offset_delta = batch.records_count, batch.last_offset_delta
    if not 0 <= count <= last_offset_delta + 1:
        raise CorruptBatch(f"{count} records, but the last offset delta is {last_offset_delta}")


def _check_fits(batch: RecordBatch, size: int) -> None:
    """Check that `size` bytes can contain the number of records. Raises CorruptBatch."""
    if batch.records_count * MIN_RECORD_SIZE > size:
        raise CorruptBatch(f"{batch.records_count} records do not fit {size} bytes")


def _decode(batch: RecordBatch, data: bytes, columns: RecordColumns) -> None:
    """Decode the records in `data`, and add them to `columns`. Raises CorruptBatch, and IndexError if a record extends
    beyond the end of `data`.

    Every length is checked, although there is no separate line for the check. Three facts replace the check. Positions
    only grow, because `read_length` refuses negative lengths and bit 0 of a zig-zag byte is the sign. Each field is
    followed by a byte that is indexed. The last field must end exactly at the record's own length.
    """
    base_offset, base_timestamp, last_offset_delta = batch.base_offset, batch.base_timestamp, batch.last_offset_delta
    add_offset, add_timestamp = columns.offsets.append, columns.timestamps.append
    add_key, add_value, add_headers = columns.keys.append, columns.values.append, columns.headers.append
    offset_delta, position, end = -1, 0, len(data)
    remaining, may_run = batch.records_count, True
    while remaining:
        start = position
        byte = data[position]
        if not byte & 0x81:
            record_end = position + 1 + (byte >> 1)
            position += 2  # skips the length and the attributes
        elif not byte & 1 and (high := data[position + 1]) < 0x80:
            record_end = position + 2 + ((byte & 0x7F | high << 7) >> 1)
            position += 3
        else:
            length, position = read_length(data, position)
            record_end = position + length
            position += 1

        timestamp_at = position
        byte = data[position]
        if not byte & 0x81:
            timestamp = base_timestamp + (byte >> 1)
            position += 1
        elif not byte & 1 and (high := data[position + 1]) < 0x80:
            timestamp = base_timestamp + ((byte & 0x7F | high << 7) >> 1)
            position += 2
        else:
            timestamp, position = read_varlong(data, position)
            timestamp += base_timestamp

        offset_at, previous, byte = position, offset_delta, data[position]
        if not byte & 0x81:
            offset_delta = byte >> 1
            position += 1
        elif not byte & 1 and (high := data[position + 1]) < 0x80:
            offset_delta = (byte & 0x7F | high << 7) >> 1
            position += 2
        else:
            offset_delta, position = read_varint(data, position)
        if not previous < offset_delta <= last_offset_delta:
            raise CorruptBatch(f"offset delta {offset_delta} after {previous}, the last is {last_offset_delta}")

        key_at, byte = position, data[position]
        if byte == NULL_BYTE:
            key = None
            key_start = position = position + 1
        else:
            if not byte & 0x81:
                key_start = position + 1
                position = key_start + (byte >> 1)
            else:
                length, key_start = read_length(data, position)
                position = key_start + length
            key = data[key_start:position]

        value_at, byte = position, data[position]
        if byte == NULL_BYTE:
            value = None
            value_start = position = position + 1
        else:
            if not byte & 0x81:
                value_start = position + 1
                position = value_start + (byte >> 1)
            elif not byte & 1 and (high := data[position + 1]) < 0x80:
                value_start = position + 2
                position = value_start + ((byte & 0x7F | high << 7) >> 1)
            else:
                length, value_start = read_length(data, position)
                position = value_start + length
            value = data[value_start:position]

        has_headers = data[position] != 0
        if not has_headers:
            headers = NO_HEADERS
            position += 1
        else:
            headers, position = read_headers(data, position)
        if position != record_end:
            raise CorruptBatch(f"the fields of the record with offset delta {offset_delta} are not as long as it says")
        add_offset(base_offset + offset_delta)
        add_timestamp(timestamp)
        add_key(key)
        add_value(value)
        add_headers(headers)
        remaining -= 1

        if may_run and remaining >= MIN_RUN and not has_headers and data[start] == data[position]:
            starts = (start, timestamp_at, offset_at, key_at, key_start, value_at, value_start, position)
            shape = _Shape(*starts, key is None, value is None)
            run = shape.run(data, min(remaining, last_offset_delta - offset_delta), offset_delta + 1)
            if run:
                shape.extend(columns, data, run, base_offset + offset_delta + 1, base_timestamp)
                offset_delta += run
                remaining -= run
                position += run * (position - start)
            may_run = run >= MIN_RUN
    if position != end:
        raise CorruptBatch(f"{end - position} bytes after the last of {batch.records_count} records")


@dataclass(slots=True)
class _Shape:
    """The positions of the fields of a record without headers in the data; `end` is the position of the next record."""

    start: int
    timestamp_at: int
    offset_at: int
    key_at: int
    key_start: int
    value_at: int
    value_start: int
    end: int
    is_key_null: bool
    is_value_null: bool

    def run(self, data: bytes, most: int, offset_delta: int) -> int:
        """Return the length of the run that starts at `end`: the number of records, at most `most`, that have this
        shape and consecutive offset deltas from `offset_delta` on.

        Every byte of these records that is not content is compared here, except the unused attributes.
        """
        size = self.end - self.start
        most = min(most, (len(data) - self.end) // size)
        first = offset_delta
        if self.key_at - self.offset_at == 1:
            most = min(most, MAX_ONE_BYTE - first)
            expected = [(self.offset_at, ONE_BYTE)]
        elif self.key_at - self.offset_at == 2:
            most = min(most, MAX_TWO_BYTES - first)
            expected = [(self.offset_at, TWO_BYTES_LOW), (self.offset_at + 1, TWO_BYTES_HIGH)]
        else:
            return 0
        allowed = _timestamp_bytes(self.timestamp_at, self.offset_at)
        if allowed is None:
            return 0
        constant = [
            *range(self.start, self.timestamp_at - 1),
            *range(self.key_at, self.key_start),
            *range(self.value_at, self.value_start),
            self.end - 1,
        ]
        allowed += [(at, data[at : at + 1]) for at in constant]
        for at, accepted in allowed:
            if most < 1:
                return 0
            column = data[at + size : at + size * most + 1 : size]
            most -= len(column.lstrip(accepted))
        for at, numbers in expected:
            if most < 1 or data[at + size : at + size * most + 1 : size] != numbers[first : first + most]:
                return 0  # no run here: the general decoder handles gaps, and lengths that change with the offset
        return most

    def extend(self, columns: RecordColumns, data: bytes, run: int, first_offset: int, base_timestamp: int) -> None:
        """Add the `run` records that start at position `end`."""
        size = self.end - self.start
        last = self.start + size * run
        columns.offsets.extend(range(first_offset, first_offset + run))
        low = data[self.timestamp_at + size : last + size : size]
        if self.offset_at - self.timestamp_at == 1:
            columns.timestamps.extend([base_timestamp + (byte >> 1) for byte in low])
        else:
            high = data[self.timestamp_at + 1 + size : last + size : size]
            columns.timestamps.extend(
                [base_timestamp + ((byte & 0x7F | more << 7) >> 1) for byte, more in zip(low, high, strict=True)]
            )
        if self.is_key_null:
            columns.keys.extend([None] * run)
        else:
            length = self.value_at - self.key_start
            first = self.key_start + size
            columns.keys.extend([data[at : at + length] for at in range(first, first + size * run, size)])
        if self.is_value_null:
            columns.values.extend([None] * run)
        else:
            length = self.end - 1 - self.value_start
            first = self.value_start + size
            columns.values.extend([data[at : at + length] for at in range(first, first + size * run, size)])
        columns.headers.extend([NO_HEADERS] * run)


def _timestamp_bytes(timestamp_at: int, offset_at: int) -> list[tuple[int, bytes]] | None:
    """Return a pair for each byte of the timestamp delta: its position, and the byte values with which the delta keeps
    its width. Returns None for widths that occur rarely.
    """
    if offset_at - timestamp_at == 1:
        return [(timestamp_at, ONE_BYTE)]
    if offset_at - timestamp_at == 2:
        return [(timestamp_at, FIRST_OF_TWO), (timestamp_at + 1, SECOND_OF_TWO)]
    return None


def read_length(data: Buffer, position: int) -> tuple[int, int]:
    """Return a non-negative varint, and the position after it. Raises CorruptBatch."""
    length, position = read_varint(data, position)
    if length < 0:
        raise CorruptBatch(f"length {length} at byte {position}")
    return length, position


def read_headers(data: bytes, position: int) -> tuple[list[tuple[str, bytes | None]], int]:
    """Return the headers at `position`, and the position of their end, which is at most the end of `data`. Raises
    CorruptBatch.
    """
    count, position = read_length(data, position)
    end = len(data)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):  # each header needs at least one byte, so a wrong count ends at the end of `data`
        length, start = read_length(data, position)
        position = start + length
        if position > end:
            raise CorruptBatch(f"header key of {length} bytes, only {end - start} are left")
        try:
            key = data[start:position].decode()
        except UnicodeDecodeError:
            raise CorruptBatch(f"header key at byte {start} is not UTF-8") from None
        length, start = read_varint(data, position)
        if length == NULL_LENGTH:
            headers.append((key, None))
            position = start
            continue
        position = start + length
        if length < 0 or position > end:
            raise CorruptBatch(f"header value of {length} bytes, {end - start} are left")
        headers.append((key, data[start:position]))
    return headers, position
