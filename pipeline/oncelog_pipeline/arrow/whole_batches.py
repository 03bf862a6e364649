"""Divides the rows of one Arrow batch into record batches, and encodes the heads of all records in one pass.

A vectorised step costs some microseconds, whatever the number of rows. Encoding the rows of each partition by
themselves would repeat all steps for each partition, which with 16 partitions and rows of 1 KB takes most of the CPU of
encoding. So the heads of all records are encoded together, with the offset of each record in its own batch. Only the
last step, which copies the records of a batch into one buffer, is done for each batch.

The head of a batch's first record begins with HEADER_SIZE bytes that are free for the header of the batch. The buffer
that the last step creates is therefore the batch that is sent, without another copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from oncelog_pipeline.arrow.varints import Codes, content_and_ends, varints, width
from oncelog_protocol.records.batch import HEADER_SIZE
from oncelog_protocol.records.packing import ATTRIBUTES

NO_DELTA: Final = b"\x00"
"""The varint of the number 0: the timestamp delta of a record with its batch's base timestamp."""


class RecordParts(NamedTuple):
    """The properties of all rows on which their division and their heads depend."""

    sizes: Any
    """The encoded size of each record in bytes, not counting its length, timestamp and offset fields."""
    ends: Any
    """Item i is the total of `sizes` before row i; the last item is the total of all rows."""
    key_codes: Codes | bytes
    """The encoded size of each key."""
    timestamps_ms: Any
    """The timestamp of each record; None if all records get the base timestamp of their batch."""
    kind: pa.DataType
    """pa.binary() or pa.large_binary()"""


class WholeBatches:
    """The rows of all partitions, divided into record batches of at most `size_limit` bytes with header; a record that
    is larger is a batch of its own.

    `bounds` are the numbers of the rows at which a partition's rows begin or end, in order. `starts` are the numbers of
    the rows at which the batches begin, followed by the number of the last row plus one. Batches of one partition have
    about the same size.
    """

    def __init__(self, parts: RecordParts, bounds: Sequence[int], size_limit: int) -> None:
        first, end = bounds[0], bounds[-1]
        times = parts.timestamps_ms
        time_width = len(NO_DELTA)
        if times is not None:
            longest = int(times[first:end].max()) - int(times[first:end].min())
            time_width = max(width(longest), width(-longest))
        largest = int(parts.sizes[first:end].max()) + time_width + width(end - first)
        more = time_width + width(end - first) + width(largest)
        self.starts = _batch_starts(parts.ends + more * np.arange(len(parts.ends)), bounds, size_limit - HEADER_SIZE)
        starts = np.array(self.starts)
        counts = np.diff(starts)
        offset_codes = varints(np.arange(first, end) - np.repeat(starts[:-1], counts))
        time_codes: Codes | bytes = NO_DELTA
        sizes = parts.sizes[first:end] + offset_codes.widths
        if times is None:
            sizes += len(NO_DELTA)
        else:
            time_codes = varints(times[first:end] - np.repeat(times[starts[:-1]], counts))
            sizes += time_codes.widths
        size_codes = varints(sizes)
        key_codes = parts.key_codes
        codes: list[Codes | bytes] = [
            size_codes,
            ATTRIBUTES,
            time_codes,
            offset_codes,
            key_codes if isinstance(key_codes, bytes) else key_codes.only(first, end),
        ]
        self._first = first
        self._heads = _with_gaps(*content_and_ends(codes, end - first), starts - first, parts.kind)
        record_ends: Any = np.zeros(end - first + 1, np.int64)
        np.cumsum(sizes + size_codes.widths, out=record_ends[1:])
        self._places = record_ends[starts - first].tolist()

    def heads(self, first: int, end: int) -> pa.Array:
        """Return the heads of the records of one batch, the rows from `first` up to `end` (excluded)."""
        return self._heads[first - self._first : end - self._first]

    def size(self, number: int) -> int:
        """Return the size of a batch in bytes, including its header; `number` is its index in `starts`."""
        size: int = HEADER_SIZE + self._places[number + 1] - self._places[number]
        return size


def _batch_starts(ends: Any, bounds: Sequence[int], room: int) -> list[int]:
    """Return the first row of each batch, and the last row plus one. `ends[i]` is an upper bound for the size of all
    records before row i.
    """
    found = []
    largest = int(np.diff(ends[bounds[0] : bounds[-1] + 1]).max())
    places = ends[bounds].tolist()
    for first, end, place, end_place in zip(bounds, bounds[1:], places, places[1:], strict=False):
        size = end_place - place
        # Batches of equal size, as a last batch of few records would cost as much as a full batch.
        wanted = min(room, size // -(-size // room) + largest)
        while first < end:
            found.append(first)
            following = int(ends.searchsorted(place + wanted, side="right")) - 1
            first = min(max(following, first + 1), end)
            place = int(ends[first])
    return [*found, bounds[-1]]


def _with_gaps(content: Any, ends: Any, starts: Any, kind: pa.DataType) -> pa.Array:
    """Return an array of the heads in `content`; HEADER_SIZE bytes are put in front of the rows `starts`, except the
    last of `starts`.
    """
    count = len(starts) - 1
    places = ends[starts].tolist()
    gapped: Any = np.zeros(len(content) + count * HEADER_SIZE, np.uint8)
    for number, (place, end) in enumerate(pairwise(places)):
        gap = (number + 1) * HEADER_SIZE
        gapped[place + gap : end + gap] = content[place:end]
    shifted = ends.astype(np.int64 if kind == pa.large_binary() else np.int32)
    shifted[1:] += np.repeat(np.arange(1, count + 1, dtype=shifted.dtype) * HEADER_SIZE, np.diff(starts))
    return pa.Array.from_buffers(kind, len(ends) - 1, [None, pa.py_buffer(shifted), pa.py_buffer(gapped)])
