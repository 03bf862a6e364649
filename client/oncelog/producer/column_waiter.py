"""One future for the records of a column."""

from __future__ import annotations

import asyncio
from typing import Any

from oncelog.producer.record_metadata import RecordMetadata


class ColumnWaiter:
    """Takes the place of one future per record (`batch.Waiter`); it is done when all `count` records are done.

    `future` then has the metadata of the first record, or the first error. Results after the first error are ignored.
    """

    __slots__ = ("_first", "_left", "future")

    def __init__(self, future: asyncio.Future[RecordMetadata], count: int) -> None:
        self.future = future
        self._left = count
        self._first: RecordMetadata | None = None

    def done(self) -> bool:
        return self.future.done()

    def set_result(self, result: RecordMetadata, /) -> None:
        self.set_results(result, 1)

    def set_results(self, first: RecordMetadata, count: int) -> None:
        """Record that `count` consecutive records are in the log, the first of them at `first`.

        Batches may be acknowledged out of order, for example after a leader change. The first record is the one with
        the smallest offset; if any offset is unknown (-1), the smallest offset is unknown too.
        """
        if self._first is None or first.offset < self._first.offset:
            self._first = first
        self._left -= count
        if not self._left:
            self.future.set_result(self._first)

    def set_exception(self, exception: Any, /) -> None:
        self.future.set_exception(exception)

    def exception(self) -> Any:
        return self.future.exception()
