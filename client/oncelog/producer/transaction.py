"""`async with producer.transaction()`: begins a transaction, commits it at the end, and aborts it if the body or the
commit fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from oncelog.errors import AbortableError, EndNotKnown, FatalError
from oncelog.producer.transactions import Transactions

if TYPE_CHECKING:
    from oncelog.tracing.transaction_span import TransactionSpan

logger = logging.getLogger(__name__)


async def until_known(end: Callable[[], Awaitable[None]]) -> None:
    """Wait for a commit or abort, however long it takes. Raises the errors of `end`, except EndNotKnown."""
    while True:
        try:
            return await end()
        except EndNotKnown as error:
            logger.warning("%s", error.message)


class Transaction:
    """One transaction as an `async with` block. An error of the body aborts the transaction and propagates; the caller
    may begin the next transaction. After a FatalError this producer cannot continue (S41). An EndNotKnown that the
    block raises is about its commit, or about a commit that an earlier block left running. A block that aborts waits
    until the abort is done; a cancelled block waits for at most max.block.ms.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._span: TransactionSpan | None = None

    async def __aenter__(self) -> Self:
        await self._transactions.until_over()
        self._transactions.begin()
        self._span = self._transactions.span
        if self._span is not None:
            self._span.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._span is not None:
            self._span.leave(error)
        if error is None:
            try:
                await self._transactions.commit()
            except AbortableError:
                await until_known(self._transactions.abort)
                raise
        elif self._transactions.is_open:
            try:
                if isinstance(error, asyncio.CancelledError):
                    with suppress(EndNotKnown):  # stop waiting: the abort continues in the background
                        await self._transactions.abort()
                else:
                    await until_known(self._transactions.abort)
            except FatalError as fatal:
                if not isinstance(error, FatalError):
                    raise fatal from error
