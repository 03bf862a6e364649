"""Records that encode themselves, many per call; an Arrow table is an example."""

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
"""A function that adds records to the batches of a partition; its argument for the records is already bound."""


AddWhole = Callable[[PartitionQueue, Packed, ColumnWaiter], Awaitable[None]]


class PackableRows(Protocol):
    """The records of one call, all for one partition and in order. The records must not change after they were passed
    to the producer.
    """

    def __len__(self) -> int:
        """Return the number of records, at least one."""

    def pack(self, first: int, now_ms: int, first_offset: int, base_timestamp_ms: int, room: int) -> Packed:
        """Encode the records from `first` on that fit into `room` bytes. The result is empty only if the first of these
        records does not fit.

        `now_ms` is the timestamp of records without a timestamp. `first_offset` is the offset delta of the first record
        in its batch, and `base_timestamp_ms` the batch's base timestamp.
        """

    def batches(self, now_ms: int, size_limit: int) -> Iterator[Packed] | None:
        """Encode all records as whole batches, in order: each has at most `size_limit` bytes or one record, and its
        data has room for the header (`RecordBatchBuilder.whole`). None means that the records are too few for batches
        of their own: they are added to other batches with `pack`.
        """

    def row(self, index: int, now_ms: int) -> Row:
        """Return one record, for starting a batch; the record may be larger than the batch size."""

    def pieces(self) -> Iterator[Columns]:
        """Return all records in order, in lists of some hundred records, for callers that need each record."""


async def hand_over_packed(
    rows: PackableRows,
    add_whole: AddWhole,
    size_limit: int,
    now_ms: int,
    queue: PartitionQueue,
    waiter: ColumnWaiter,
    begin_batch: BeginBatch,
) -> None:
    """Add all records, in order: as whole batches of at most `size_limit` bytes, which `add_whole` adds, or one after
    another to the tail; `begin_batch` then starts a new batch with a record that does not fit into the tail.

    Raises the errors of `add_whole` and `begin_batch`; the earlier records have then been added.
    """
    if (batches := rows.batches(now_ms, size_limit)) is not None:
        for packed in batches:
            await add_whole(queue, packed, waiter)
        return
    done = 0
    while done < len(rows):
        tail = queue.tail
        count = 0 if tail is None else tail.extend_packed(partial(rows.pack, done, now_ms), waiter)
        if not count:
            await begin_batch(queue, rows.row(done, now_ms), waiter)
            count = 1
        done += count


def all_columns(rows: PackableRows) -> Columns:
    """Return all fields as columns. Raises ValueError if there are no records."""
    values, keys, timestamps_ms, headers = zip(*rows.pieces(), strict=True)
    return Columns(
        list(chain.from_iterable(values)),
        _chained(keys),
        _chained(timestamps_ms),
        _chained(headers),
    )


def _chained(pieces: Sequence[Sequence[T] | None]) -> list[T] | None:
    """Return the chained column; None if the records have no such field."""
    found = [piece for piece in pieces if piece is not None]
    return list(chain.from_iterable(found)) if found else None
