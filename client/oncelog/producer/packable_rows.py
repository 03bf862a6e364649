"""Records that encode themselves, many at a time: a table in Arrow's form, for one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Protocol, TypeVar

from oncelog.producer.accumulator import PartitionQueue
from oncelog.producer.column_waiter import ColumnWaiter
from oncelog.producer.columns import BeginBatch, Columns, Row
from oncelog_protocol.records.packing import Packed

T = TypeVar("T")

HandOver = Callable[[int, PartitionQueue, ColumnWaiter, BeginBatch], Awaitable[None]]
"""`hand_over` or `hand_over_packed`, with the records bound to it."""


class PackableRows(Protocol):
    """Records of one partition, in order. They do not change after they were handed over."""

    def __len__(self) -> int:
        """How many records there are: at least one."""

    def pack(self, first: int, now_ms: int, first_offset: int, base_timestamp_ms: int, room: int) -> Packed:
        """The records from number `first` on that fit `room` bytes, encoded; none only where the first does not fit.

        `now_ms` is the time of a record that has none. `first_offset` is the offset delta of the first record in its
        batch, and `base_timestamp_ms` the time from which the batch counts those of its records.
        """

    def row(self, index: int, now_ms: int) -> Row:
        """One record. It begins a batch, which it may exceed."""

    def pieces(self) -> Iterator[Columns]:
        """All records in order, some hundred at a time, for whoever must look at each."""


async def hand_over_packed(
    rows: PackableRows, now_ms: int, queue: PartitionQueue, waiter: ColumnWaiter, begin_batch: BeginBatch
) -> None:
    """All records, in order. `begin_batch` is for one that the batch at the queue's tail has no room for.

    Raises what `begin_batch` raises; the records before have been handed over then.
    """
    done = 0
    while done < len(rows):
        tail = queue.tail
        count = 0 if tail is None else tail.extend_packed(partial(rows.pack, done, now_ms), waiter)
        if not count:
            await begin_batch(queue, rows.row(done, now_ms), waiter)
            count = 1
        done += count


def all_columns(rows: PackableRows) -> Columns:
    """Each record's fields. Raises ValueError where there is no record."""
    values, keys, timestamps_ms, headers = zip(*rows.pieces(), strict=True)
    return Columns(
        list(chain.from_iterable(values)),
        _chained(keys),
        _chained(timestamps_ms),
        _chained(headers),
    )


def _chained(pieces: Sequence[Sequence[T] | None]) -> list[T] | None:
    """None where the records have no such field; either each piece has it, or none."""
    found = [piece for piece in pieces if piece is not None]
    return list(chain.from_iterable(found)) if found else None
