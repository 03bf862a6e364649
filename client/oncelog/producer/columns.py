"""Adds columns of records to the batches of a partition, many records at once if possible."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import repeat
from typing import Final, NamedTuple, TypeGuard

from oncelog.producer.accumulator import PartitionQueue
from oncelog.producer.column_waiter import ColumnWaiter
from oncelog_protocol.records.batch import Buffer
from oncelog_protocol.records.builder import HeaderSequence

MAX_TIMESTAMP: Final = 2**63 - 1
"""The largest timestamp in milliseconds, the largest int64."""
NO_HEADERS: Final[HeaderSequence] = ()
ROWS_AT_ONCE: Final = 1024
"""Number of records processed together; with a larger number, more work would be wasted when a batch is full."""

Row = tuple[int, Buffer | None, Buffer | None, HeaderSequence]
"""A record: (timestamp in ms, key, value, headers)."""
BeginBatch = Callable[[PartitionQueue, Row, ColumnWaiter], Awaitable[None]]


class Columns(NamedTuple):
    """Columns of equal length; the columns of keys, timestamps and headers may be None, which means no keys, the
    present time, or no headers. `check` raises
    ValueError for invalid columns.
    """

    values: Sequence[Buffer | None]
    keys: Sequence[Buffer | None] | None
    timestamps_ms: Sequence[int] | None
    headers: Sequence[HeaderSequence] | None

    def check(self) -> None:
        for name in ("keys", "timestamps_ms", "headers"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.values):
                raise ValueError(f"{name}: {len(column)} for {len(self.values)} values")
        if not self.values:
            raise ValueError("values: at least one is needed")

    def pieces(self) -> Iterator[Columns]:
        """Yield the columns in sections of at most ROWS_AT_ONCE records."""
        for first in range(0, len(self.values), ROWS_AT_ONCE):
            yield self._only(slice(first, first + ROWS_AT_ONCE))

    def _only(self, rows: slice) -> Columns:
        return Columns(
            self.values[rows],
            None if self.keys is None else self.keys[rows],
            None if self.timestamps_ms is None else self.timestamps_ms[rows],
            None if self.headers is None else self.headers[rows],
        )

    def rows(self, now_ms: int) -> Iterator[Row]:
        return zip(
            repeat(now_ms) if self.timestamps_ms is None else self.timestamps_ms,
            repeat(None) if self.keys is None else self.keys,
            self.values,
            repeat(NO_HEADERS) if self.headers is None else self.headers,
            strict=False,
        )


def _all_bytes(column: Sequence[Buffer | None]) -> TypeGuard[Sequence[bytes]]:
    return set(map(type, column)) == {bytes}


async def hand_over(
    columns: Columns, now_ms: int, queue: PartitionQueue, waiter: ColumnWaiter, begin_batch: BeginBatch
) -> None:
    """Add all records, in order. `begin_batch` starts a new batch with a record that does not fit into the tail.

    Raises ValueError for an invalid timestamp, and the errors of `begin_batch`; the earlier records have then been
    added.
    """
    for piece in columns.pieces():
        keys, values, is_alike = piece.keys, piece.values, piece.timestamps_ms is None and piece.headers is None
        if is_alike and _all_bytes(values) and (keys is None or _all_bytes(keys)):
            await _pack(now_ms, keys, values, queue, waiter, begin_batch)
        else:
            await _append(piece.rows(now_ms), queue, waiter, begin_batch)


async def _pack(
    now_ms: int,
    keys: Sequence[bytes] | None,
    values: Sequence[bytes],
    queue: PartitionQueue,
    waiter: ColumnWaiter,
    begin_batch: BeginBatch,
) -> None:
    done = 0
    while done < len(values):
        tail = queue.tail
        count = 0 if tail is None else tail.extend(now_ms, None if keys is None else keys[done:], values[done:], waiter)
        if not count:
            row = (now_ms, None if keys is None else keys[done], values[done], NO_HEADERS)
            await begin_batch(queue, row, waiter)
            count = 1
        done += count


async def _append(rows: Iterator[Row], queue: PartitionQueue, waiter: ColumnWaiter, begin_batch: BeginBatch) -> None:
    for row in rows:
        if not 0 <= row[0] <= MAX_TIMESTAMP:
            raise ValueError(f"timestamp {row[0]}: must be from 0 to {MAX_TIMESTAMP}")
        tail = queue.tail
        if tail is None or not tail.append(*row, waiter):
            await begin_batch(queue, row, waiter)
