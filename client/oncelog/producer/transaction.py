"""`async with producer.transaction()`: begins, commits at the end, aborts if the body or the commit fails."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from oncelog.errors import AbortableError, FatalError
from oncelog.producer.transactions import Transactions


class Transaction:
    """One transaction as a block. An error of the body aborts it and goes on to the caller, who may begin the next one;
    a FatalError means that this producer cannot go on (S41)."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def __aenter__(self) -> Self:
        self._transactions.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            try:
                await self._transactions.commit()
            except AbortableError:
                await self._transactions.abort()
                raise
        elif self._transactions.is_open:
            try:
                await self._transactions.abort()
            except FatalError as fatal:
                if not isinstance(error, FatalError):
                    raise fatal from error
