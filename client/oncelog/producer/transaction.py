"""`async with producer.transaction()`: begins, commits at the end, aborts if the body or the commit fails."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Self

from oncelog.errors import AbortableError, FatalError, KafkaError
from oncelog.producer.transactions import Transactions

logger = logging.getLogger(__name__)


class Transaction:
    """One transaction as a block. An error of the body aborts it and goes on to the caller, who may begin the next one;
    a FatalError means that this producer cannot go on (S41).

    Who is cancelled during the commit leaves when that has ended, which it does all the same, or is cancelled again:
    `is_committed` says how. So the next one can begin.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._number = 0

    async def __aenter__(self) -> Self:
        self._transactions.begin()
        self._number = self._transactions.manager.number
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
            except asyncio.CancelledError:
                await self._settle()
                raise
        elif self._transactions.is_open:
            try:
                await self._transactions.abort()
            except KafkaError as failed:
                if isinstance(error, asyncio.CancelledError):
                    self._tell(failed)
                elif not (isinstance(error, FatalError) and isinstance(failed, FatalError)):
                    raise failed from error

    async def _settle(self) -> None:
        try:
            await self._transactions.settle()
        except KafkaError as error:
            self._tell(error)

    def _tell(self, error: KafkaError) -> None:
        """A cancellation is not to be lost for an error: the next transaction will not begin if it matters."""
        logger.warning("transactional id %s, while cancelled: %s", self._transactions.manager.transactional_id, error)

    @property
    def is_committed(self) -> bool:
        """As far as is known: of a commit that is not answered yet it is False."""
        return self._number > 0 and self._transactions.committed_number == self._number
