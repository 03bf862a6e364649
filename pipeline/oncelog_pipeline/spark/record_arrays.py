"""Decodes the records of many batches into Arrow arrays with numpy, without a Python object for each record.

1. The decoder finds the beginnings of the records one after another, by the length in front of each record. Consecutive
   records of equal length (a run) are found in one step, and so are consecutive batches with the same lengths.
2. When all beginnings are known, each field is read for all records in one step, with arrays of positions and of
   lengths. 3. Arrow copies keys and values from the bytes of the fetch response, by their positions and lengths.

Records with headers, records whose length takes more than four bytes, and malformed records are not decoded here. The
result is then None, and the decoder of single batches decodes the records or reports the fault. For the format of a
record see `oncelog_protocol.records.record`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from oncelog import UndecodedBatch
from oncelog_pipeline.arrow.without_pandas import arrow_array
from oncelog_protocol.records.batch import HEADER_SIZE

MAX_BYTES: Final = 2**30
"""The maximum number of bytes that are decoded together: positions then fit into 32 bits, even if a record claims the
longest possible field.
"""
MIN_RUN: Final = 8
"""A run (consecutive records of equal length) is searched only if at least this many records remain."""
MAX_SHORT: Final = 4
MAX_LONG: Final = 9
"""This module decodes varints of at most MAX_SHORT bytes for 32-bit fields, and of at most MAX_LONG bytes for 64-bit
fields.
"""


class RecordArrays(NamedTuple):
    """The fields of records as columns of equal length. `keys` and `values` are Arrow arrays, the other columns numpy
    arrays.
    """

    keys: Any
    values: Any
    offsets: Any
    timestamps_ms: Any
    timestamp_types: Any


class _NotPlain(Exception):
    """The records cannot be decoded together by this module, only batch by batch."""


def record_arrays(batches: Sequence[UndecodedBatch]) -> RecordArrays | None:
    """Decode the records of these batches of one partition, in order. Returns None if this module cannot decode the
    records.

    Records outside the bounds of their batch are omitted, so the arrays may be empty.
    """
    if not batches:
        return None
    content, bases = _content(batches)
    if len(content) > MAX_BYTES:
        return None
    try:
        return _decoded(batches, content, bases)
    except (_NotPlain, IndexError):
        return None


def _content(batches: Sequence[UndecodedBatch]) -> tuple[bytes | bytearray, list[int]]:
    """Return bytes that contain the records of all batches, and the positions at which the records of each batch begin.
    If a single response contains all batches uncompressed, the result is the bytes of that response; otherwise it is a
    copy.
    """
    views = [each.data for each in batches]
    whole = views[0].obj if isinstance(views[0], memoryview) else None
    if isinstance(whole, bytes | bytearray) and all(
        isinstance(each, memoryview) and each.obj is whole for each in views
    ):
        return whole, _positions(whole, batches)
    return b"".join(views), [0, *accumulate(len(each) for each in views)][:-1]


def _positions(whole: bytes | bytearray, batches: Sequence[UndecodedBatch]) -> list[int]:
    """Return the positions in `whole` at which the records of each batch begin. All batches are uncompressed parts of
    `whole`.
    """
    begin = _address(whole)
    found: list[int] = []
    buffer: Any = None
    for batch, _, _, _ in batches:
        if batch.buffer is not buffer:  # all batches of a response have the same buffer
            buffer = batch.buffer
            position = _address(buffer) - begin + HEADER_SIZE
        found.append(position + batch.start)
    return found


def _address(data: Any) -> int:
    address: int = np.frombuffer(data, np.uint8).ctypes.data
    return address


def _decoded(batches: Sequence[UndecodedBatch], data: bytes | bytearray, bases: Sequence[int]) -> RecordArrays:
    content = np.frombuffer(data, np.uint8)
    sizes, counts = [len(each.data) for each in batches], [each.batch.records_count for each in batches]
    at = all_record_starts(data, bases, sizes, counts)
    counts = np.array(counts)
    ends: Any = np.append(at[1:], np.int32(0))
    ends[np.cumsum(counts) - 1] = np.add(bases, sizes)

    _, at = _varints(content, at, MAX_SHORT)
    timestamps, at = _varints(content, at + 1, MAX_LONG)  # `at + 1` skips the record's attributes, one byte
    deltas, at = _varints(content, at, MAX_SHORT)
    key_sizes, key_starts = _varints(content, at, MAX_SHORT)
    key_ends = key_starts + np.maximum(key_sizes, 0)
    _check(key_sizes >= -1, key_ends < ends)
    value_sizes, value_starts = _varints(content, key_ends, MAX_SHORT)
    value_ends = value_starts + np.maximum(value_sizes, 0)
    _check(value_sizes >= -1, value_ends + 1 == ends)
    _check(content[value_ends] == 0)  # the number of headers is 0

    first = np.cumsum(counts) - counts
    _check_deltas(deltas, first, counts, [each.batch.last_offset_delta for each in batches])
    offsets = deltas + _repeated([each.batch.base_offset for each in batches], counts)
    is_append_time = [each.batch.is_log_append_time for each in batches]
    time_deltas, first_times = timestamps, _repeated([each.batch.base_timestamp for each in batches], counts)
    timestamps = first_times + time_deltas
    # a larger timestamp delta would make the timestamp exceed 64 bits
    _check((time_deltas >= 0) == (timestamps >= first_times))
    if any(is_append_time):
        appended = _repeated([each.batch.max_timestamp for each in batches], counts)
        timestamps = np.where(_repeated(is_append_time, counts), appended, timestamps)
    kept = _kept(batches, offsets, counts)
    buffer = pa.py_buffer(data)
    return RecordArrays(
        _gathered(buffer, key_starts, key_ends, key_sizes, kept),
        _gathered(buffer, value_starts, value_ends, value_sizes, kept),
        offsets if kept is None else offsets[kept],
        timestamps if kept is None else timestamps[kept],
        _types(is_append_time, counts, kept),
    )


def all_record_starts(
    data: bytes | bytearray, bases: Sequence[int], sizes: Sequence[int], counts: Sequence[int]
) -> Any:
    """Return an array of the positions at which the records of all batches begin. The records of a batch begin at its
    base, and have a total size in bytes and a count.

    Consecutive batches of equal size and count, as a producer writes them from records of equal size, are compared with
    the first of them in one step. Raises the errors of `record_starts`.
    """
    content = np.frombuffer(data, np.uint8)
    found: list[Any] = []
    number = 0
    for (size, count), batches in groupby(zip(sizes, counts, strict=True)):
        following = number + len(list(batches))
        base, *others = bases[number:following]
        first = np.concatenate(record_starts(data, base, base + size, count))
        found.append(first)
        if others:
            starts = np.array(others, np.int32)[:, np.newaxis] + (first - np.int32(base))
            is_alike = _have_lengths_of(content, first, starts)
            if is_alike.all():
                found.append(starts.reshape(-1))
            else:
                for each, at, is_same in zip(others, starts, is_alike.tolist(), strict=True):
                    found += [at] if is_same else record_starts(data, each, each + size, count)
        number = following
    return np.concatenate(found)


def _have_lengths_of(content: Any, first: Any, starts: Any) -> Any:
    """Return for each row of `starts` whether the records at these positions have the same lengths as the records at
    `first`. Then they begin at these positions, because each record begins where the previous record ends.
    """
    is_alike: Any = np.ones(len(starts), np.bool_)
    step = 0
    columns = np.arange(len(first))
    while len(columns):  # the columns whose lengths have a byte at `step`
        bytes_of_first = content[first[columns] + step]
        is_alike &= (content[starts[:, columns] + step] == bytes_of_first).all(axis=1)
        columns = columns[bytes_of_first > 0x7F]
        step += 1
    return is_alike


def record_starts(data: bytes | bytearray, position: int, end: int, count: int) -> list[Any]:
    """Return arrays of the positions at which the `count` records between `position` and `end` begin.

    Raises _NotPlain if there are not exactly `count` records, and IndexError if a record extends beyond the end of
    `data`.
    """
    arrays: list[Any] = []
    single: list[int] = []
    add = single.append
    left = count
    while left:
        byte = data[position]
        if byte < 0x80:
            width, length = 1, byte >> 1
        elif (high := data[position + 1]) < 0x80:
            width, length = 2, (byte & 0x7F | high << 7) >> 1
        elif (higher := data[position + 2]) < 0x80:
            width, length = 3, (byte & 0x7F | (high & 0x7F) << 7 | higher << 14) >> 1
        else:
            raise _NotPlain
        if byte & 1:
            raise _NotPlain  # the record's length is negative
        add(position)
        left -= 1
        size = width + length
        following = position + size
        if left >= MIN_RUN and data[following] == byte:
            run = _run(data, position, size, width, min(left, (end - following) // size))
            if run:
                arrays += [np.array(single, np.int32), np.arange(run, dtype=np.int32) * size + following]
                single = []
                add = single.append
                left -= run
                following += run * size
        position = following
    if position != end:
        raise _NotPlain  # also true if a record extends beyond the end of its batch
    arrays.append(np.array(single, np.int32))
    return arrays


def _run(data: bytes | bytearray, position: int, size: int, width: int, most: int) -> int:
    """Return how many of the next `most` records have the same length as the record at `position`. In such a run each
    record begins `size` bytes after the previous record, so it is sufficient to compare the `width` bytes that encode
    the length.
    """
    for at in range(position, position + width):
        if most < 1:
            return 0
        column = data[at + size : at + size * most + 1 : size]
        most = len(column) - len(column.lstrip(data[at : at + 1]))
    return most


def _varints(content: Any, at: Any, most: int) -> tuple[Any, Any]:
    """Read the zig-zag varints at these positions. Returns the values and the positions after each varint. Raises
    _NotPlain, IndexError."""
    byte = content[at]
    value = (byte & 0x7F).astype(np.int32 if most == MAX_SHORT else np.int64)
    at = at + 1
    more = np.flatnonzero(byte > 0x7F)
    shift = 7
    while more.size:
        if shift >= 7 * most:
            raise _NotPlain
        byte = content[at[more]]
        value[more] |= (byte & 0x7F).astype(value.dtype) << shift
        at[more] += 1
        more = more[byte > 0x7F]
        shift += 7
    return (value >> 1) ^ -(value & 1), at


def _check(*conditions: Any) -> None:
    """Raise _NotPlain unless every condition is true for every record."""
    for each in conditions:
        if not each.all():
            raise _NotPlain


def _check_deltas(deltas: Any, first: Any, counts: Any, last_deltas: Sequence[int]) -> None:
    """Raise _NotPlain unless the offset deltas of each batch increase, begin at 0 or above, and end at the batch's last
    offset delta or below.
    """
    grows = np.diff(deltas, prepend=np.int32(-1)) > 0
    grows[first[counts > 0]] = True
    has_some = counts > 0
    lasts = (first + counts - 1)[has_some]
    _check(grows, deltas >= 0, deltas[lasts] <= np.array(last_deltas)[has_some])


def _repeated(of_batches: Sequence[int], counts: Any) -> Any:
    return np.repeat(np.array(of_batches), counts)


def _kept(batches: Sequence[UndecodedBatch], offsets: Any, counts: Any) -> Any:
    """Return the indexes of the records within the bounds of their batches; None if all records are within the
    bounds.
    """
    if not any(each.is_cut for each in batches):
        return None
    start, end = (_repeated([getattr(each, name) for each in batches], counts) for name in ("start", "end"))
    return np.flatnonzero((offsets >= start) & (offsets < end))


def _gathered(buffer: Any, starts: Any, ends: Any, sizes: Any, kept: Any) -> Any:
    """Return an Arrow array of the bytes from `starts[i]` to `ends[i]`, null where `sizes[i]` is negative.

    The entire buffer becomes one Arrow array that is cut at all starts and ends; every second element of this array is
    one of the values to return.
    """
    count = len(starts)
    is_null = sizes < 0
    if is_null.all():
        return pa.nulls(count if kept is None else len(kept), pa.binary())
    bounds: Any = np.empty(2 * count, np.int32)
    bounds[::2] = starts
    bounds[1::2] = ends
    every = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), buffer])
    wanted = np.arange(0, 2 * count, 2, dtype=np.int32) if kept is None else (2 * kept).astype(np.int32)
    # Import it here: the import takes 30 ms, and processes that only plan batches do not need the module.
    import pyarrow.compute as pc

    return pc.take(
        every, arrow_array(wanted, pa.int32(), is_null if kept is None else is_null[kept]), boundscheck=False
    )


def repeated_text(text: str, count: int) -> Any:
    """Return an Arrow array that has the same text `count` times."""
    encoded = text.encode()
    ends: Any = np.arange(count + 1, dtype=np.int32) * len(encoded)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(encoded * count)])


def _types(is_append_time: Sequence[bool], counts: Any, kept: Any) -> Any:
    types: Any = np.repeat(np.array(is_append_time, np.int32), counts)
    return types if kept is None else types[kept]
