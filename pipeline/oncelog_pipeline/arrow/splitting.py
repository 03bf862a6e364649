"""Splits the rows of a table by topic and partition, and keeps their order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np

from oncelog_pipeline.arrow.buffers import is_valid, numbers_of
from oncelog_pipeline.arrow.murmur2 import partitions_of_keys
from oncelog_pipeline.arrow.packed_rows import EncodedColumns, PackedRows
from oncelog_pipeline.arrow.record_columns import RecordColumns
from oncelog_pipeline.arrow.without_pandas import zero

SMALL: Final = 1 << 16
"""Partition numbers below this limit are sorted as 16-bit numbers, because Arrow's radix sort for them takes a tenth of
the time.
"""


class NoTopic(ValueError):
    """A row has no topic: neither the option `topic` nor the column "topic" names one."""


def by_topic(columns: RecordColumns) -> Iterator[tuple[str, RecordColumns]]:
    """Yield the rows of each topic that the column "topic" names. Raises NoTopic."""
    assert columns.topics is not None
    if columns.topics.null_count:
        row = int(np.flatnonzero(~is_valid(columns.topics))[0])
        raise NoTopic(f"row {row} of the batch has a null")
    found = columns.topics.dictionary_encode()
    names = found.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], columns
        return
    indices = numbers_of(found.indices)
    for index, name in enumerate(names):
        yield name, columns.take(np.flatnonzero(indices == index))


def partitions(columns: RecordColumns, count: int, sticky: int, *, ignores_keys: bool) -> Any:
    """Return an int64 array with the partition of each row. A row's value in the column "partition" is used if it is
    set; otherwise the hash of the row's key determines the partition. Rows without a key get the partition `sticky`.
    """
    found: Any = np.full(len(columns), sticky, np.int64)
    keys = None if ignores_keys else columns.keys
    if keys is not None:
        of_keys = partitions_of_keys(keys, count)
        found = np.where(is_valid(keys), of_keys, found) if keys.null_count else of_keys
    said = columns.partitions
    if said is not None:
        found = np.where(is_valid(said), numbers_of(said.fill_null(zero(said.type))), found)
    return found


def by_partition(columns: RecordColumns, partitions: Any) -> tuple[PackedRows, list[tuple[int, PackedRows]]]:
    """Return all rows, and the rows of each partition. `partitions` has the partition of each row.

    The first result has all rows, in the order of their partitions. The caller can compute one digest of all these
    rows, which costs less than one digest for each partition; a digest does not depend on the order of the rows.
    """
    count = len(columns)
    least, most = int(partitions.min()), int(partitions.max())
    if least == most:
        rows = PackedRows(EncodedColumns(columns.in_one_piece()), 0, count)
        return rows, [(least, rows)]
    keys = partitions.astype(np.uint16) if least >= 0 and most < SMALL else partitions
    order = np.argsort(keys, kind="stable")
    encoded, ordered = EncodedColumns(columns.take(order)), partitions[order]
    bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), count]
    parts = [(int(ordered[first]), PackedRows(encoded, first, end)) for first, end in pairwise(bounds)]
    return PackedRows(encoded, 0, count), parts
