"""Consumes, processes and produces in prepared transactions (KIP-939), whose ends a ledger outside the cluster decides.

The ledger is a file: it survives the death of the process, as a database would. A process that starts first ends the
open transaction of its predecessor as the ledger says.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from oncelog import Consumer, Producer, TopicPartition
from oncelog.consume_process_produce import rewind
from oncelog.errors import AbortableError
from oncelog.prepared_transaction import PreparedTransaction
from oncelog.producer.transaction import until_known

Work = Callable[[Sequence[Any]], Awaitable[None]]
"""Sends the outputs for some records; raises the exception of `aborts` if the transaction must be aborted."""


class Ledger:
    """The file with the last transaction that is decided to commit."""

    def __init__(self, transactional_id: str) -> None:
        self._path = Path(tempfile.gettempdir()) / f"{transactional_id}.ledger"

    def store(self, prepared: PreparedTransaction) -> None:
        """Decide that the transaction commits; from then on, any process that ends the transaction commits it."""
        written = self._path.with_suffix(".new")
        with written.open("w") as file:
            json.dump(prepared, file)
            file.flush()
            os.fsync(file.fileno())
        written.replace(self._path)

    def stored(self) -> PreparedTransaction | None:
        if not self._path.exists():
            return None
        return PreparedTransaction(*json.loads(self._path.read_text()))

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


class TwoPhasePipe:
    """Moves the records of one partition to their outputs, one prepared transaction after another."""

    def __init__(
        self, consumer: Consumer[Any, Any], producer: Producer[Any, Any], transactional_id: str, aborts: type[Exception]
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._ledger = Ledger(transactional_id)
        self._aborts = aborts

    async def run(self, where: TopicPartition, inputs: int, per_transaction: int, poll_ms: int, work: Work) -> None:
        """Process the records of the partition until the group's committed offset is `inputs`."""
        while True:
            committed = (await self._consumer.committed([where]))[where]
            if committed is not None and committed.offset == inputs:
                self._ledger.remove()
                return
            polled = await self._consumer.poll(poll_ms, per_transaction)
            if records := polled.get(where):
                try:
                    await self._transact(where, records, work)
                except (AbortableError, self._aborts):
                    await until_known(self._producer.abort_transaction)
                    rewind(self._consumer, polled)

    async def end_open_transaction(self) -> None:
        """End the transaction that an earlier process has left open, as the ledger says."""
        await until_known(partial(self._producer.complete_transaction, self._ledger.stored()))

    async def _transact(self, where: TopicPartition, records: Sequence[Any], work: Work) -> None:
        consumed, group = self._consumer.consumed(), self._consumer.group_metadata()
        self._producer.begin_transaction()
        await work(records)
        await self._producer.send_offsets({where: consumed[where]}, group)
        prepared = await until_known(self._producer.prepare_transaction)
        assert prepared is not None, "the transaction has records"
        self._ledger.store(prepared)
        await until_known(partial(self._producer.complete_transaction, prepared))
