"""Two-phase commit (KIP-939): prepared transactions whose end is decided outside the cluster.

The client has a ledger outside the cluster, as a database would be: before it ends a transaction, it stores in the
ledger the prepared transaction and the decision to commit or abort. The client may die between storing the decision and
ending the transaction; its successor then completes the transaction according to the ledger. No timeout may end a
prepared transaction.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from oncelog import Producer
from oncelog.errors import AbortableError
from oncelog.prepared_transaction import PreparedTransaction
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.transactions import PARTITIONS, PAYMENTS, until_known
from oncelog_simulation.workloads.workload import COMMON, ClientWorkload, make_topic, pause, producer_options
from oncelog_simulation.workloads.writers import SMALL_SEGMENTS
from oncelog_testing.history.events import End, Place, Send, Transaction

if TYPE_CHECKING:
    import asyncio

    from oncelog_simulation.world import World

LEAVES: Final = 0.25
"""Fraction of the prepared transactions that a producer leaves to its successor."""
LEFT_SECONDS: Final = 4.0
"""Mean virtual seconds for which a transaction that is left to the successor stays open."""


class TwoPhaseWriter(ClientWorkload):
    """Prepares one transaction after another. `_stored` is the ledger, which survives the death of the client."""

    def __init__(self, notes: Notes, name: str) -> None:
        super().__init__(notes, name)
        self._number = 0
        self._stored: PreparedTransaction | None = None
        """The prepared transaction that is stored in the ledger, with the decision to commit it; None means that the
        open transaction is to be aborted.
        """
        self._open: Transaction | None = None
        """The transaction that has begun and has not ended yet; None if there is none."""

    async def prepare(self, world: World) -> None:
        for topic in PAYMENTS:
            await make_topic(world, self.notes, topic, PARTITIONS, SMALL_SEGMENTS)

    async def live(self, world: World) -> None:
        rng = self.random(world)
        options = {**COMMON, **producer_options(), "two_phase_commit": True}
        producer = Producer(world.bootstrap_servers, transactional_id=self.name, **options)
        await producer.start()
        try:
            await self._complete(producer)
            goes_on = self.counts_down(world)
            while goes_on:
                if await self._transact(world, producer, rng):
                    await producer.close(0)
                    await pause(world, rng.expovariate(1 / LEFT_SECONDS))
                    producer = Producer(world.bootstrap_servers, transactional_id=self.name, **options)
                    await producer.start()
                    await self._complete(producer)
                await pause(world, rng.expovariate(1))
        finally:
            await producer.close(0)

    async def _complete(self, producer: Producer) -> None:
        """End the transaction that the previous life of this client has left open, according to the ledger."""
        if self._open is None:
            await until_known(partial(producer.complete_transaction, None))
            return
        await until_known(partial(producer.complete_transaction, self._stored))
        self._ended(End.COMMITTED if self._stored is not None else End.ABORTED)

    def _ended(self, end: End) -> None:
        assert self._open is not None
        self.notes.history.ended(self._open, end)
        self._open = self._stored = None
        self.notes.step(self.name)

    async def _transact(self, world: World, producer: Producer, rng: Random) -> bool:
        """Prepare one transaction and end it. Returns whether the transaction is left for a successor to end."""
        producer.begin_transaction()
        transaction = self._open = self.notes.history.transaction(self.name)
        self._stored = None
        try:
            for _ in range(rng.choice((1, 3))):
                await self._send(producer, transaction, rng)
            prepared = await until_known(producer.prepare_transaction)
        except AbortableError:
            await until_known(producer.abort_transaction)
            self._ended(End.ABORTED)
            return False
        commits = prepared is not None and rng.random() < 0.7
        self._stored = prepared if commits else None  # the ledger stores the decision before the transaction ends
        if rng.random() < LEAVES and not world.calm.is_set():
            return True
        await until_known(partial(producer.complete_transaction, self._stored))
        self._ended(End.COMMITTED if commits else End.ABORTED)
        return False

    async def _send(self, producer: Producer, transaction: Transaction, rng: Random) -> None:
        place = Place(rng.choice(PAYMENTS), rng.randrange(PARTITIONS))
        self._number += 1
        value = f"{self.name}/{self._number}".encode()
        send = self.notes.history.send(f"{self.name}/{self.lives}", place, value, transaction)
        future = await producer.send(place.topic, value, partition=place.index)
        future.add_done_callback(partial(self._answered, send))

    def _answered(self, send: Send, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.notes.history.acknowledged(send, future.result().offset)
