"""One future for the many records of a column."""

from __future__ import annotations

import asyncio
from typing import Any

from oncelog.producer.record_metadata import RecordMetadata


class ColumnWaiter:
    """Stands for a future in each record's place (`batch.Waiter`): done when all `count` records are.

    `future` has the metadata of the first record then, or the first error. What is told of a record after an error does
    not count any more.
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
        """`count` records one after another are there, the first of them at `first`.

        A batch may be acknowledged before one that was sent earlier: after a change of leaders, say. The first record
        has the smallest offset of all; where one is not known (-1), neither is which that is.
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
