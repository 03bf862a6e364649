"""Transactional producers: records in several partitions and offsets of a group, which are committed, aborted or left
open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oncelog import ConsumerGroupMetadata, Producer, TopicPartition
from oncelog.errors import AbortableError, EndNotKnown, KafkaError
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.workload import ClientWorkload, make_topic, pause, producer_options
from oncelog_simulation.workloads.writers import SMALL_SEGMENTS
from oncelog_testing.history.events import Commit, End, Outcome, Place, Send, Transaction

if TYPE_CHECKING:
    from oncelog_simulation.world import World

T = TypeVar("T")

PAYMENTS: Final = ("payments", "receipts")
"""The two topics to which each transaction may write."""
PARTITIONS: Final = 2
ABORTS: Final = 0.2
"""Fraction of the transactions that the producer aborts on purpose."""
WRITTEN: Final = 0.8
"""Fraction of the aborted transactions whose records reach the log."""
DESERTS: Final = 0.05
"""Fraction of the transactions after which the producer leaves another one open and ends; the start of its successor
aborts the open transaction.
"""
TRANSACTION_TIMEOUTS_MS: Final = (2_000, 10_000)
"""Transaction timeouts from which each start of the producer draws one."""
SLEEPS: Final = 0.1
"""Fraction of the transactions with the shorter timeout in which the producer sleeps for longer than the timeout, and
then goes on as if the transaction were still open; applies only until the faults are over.
"""
SLEEP: Final = 1.5
"""Such a sleep lasts SLEEP * (timeout + 1 s), because coordinators look for timed-out transactions once a second."""


class TransactionalWriter(ClientWorkload):
    """Runs one transaction after another. The offsets that it commits belong to a group without members, in a partition
    that no other client uses.
    """

    topics: tuple[str, ...] = PAYMENTS
    """The topics to which each transaction may write, with PARTITIONS partitions each."""

    def __init__(self, notes: Notes, name: str) -> None:
        super().__init__(notes, name)
        self._number = 0
        self._group = f"{name}-ledger"
        self._ledger = 0
        self._sleep_seconds = 0.0
        """Virtual seconds for which the producer sleeps in some transactions; 0 if it never sleeps."""

    async def prepare(self, world: World) -> None:
        for topic in self.topics:
            await make_topic(world, self.notes, topic, PARTITIONS, SMALL_SEGMENTS)

    async def live(self, world: World) -> None:
        rng = self.random(world)
        mean = rng.choice((0.5, 1.0, 2.0))
        timeout_ms = rng.choice(TRANSACTION_TIMEOUTS_MS)
        is_short = timeout_ms == min(TRANSACTION_TIMEOUTS_MS)
        self._sleep_seconds = SLEEP * (timeout_ms / 1000 + 1) * world.plan.leisure if is_short else 0.0
        options = producer_options(transaction_timeout_ms=round(timeout_ms * world.plan.leisure))
        producer = Producer(world.bootstrap_servers, transactional_id=self.name, **options)
        await producer.start()
        try:
            goes_on = self.counts_down(world)
            while goes_on:
                await self._transact(world, producer, rng)
                if rng.random() < DESERTS and not world.calm.is_set():
                    await self._begin_and_leave(producer, rng)
                    producer = Producer(world.bootstrap_servers, transactional_id=self.name, **options)
                    await producer.start()
                await pause(world, rng.expovariate(1 / mean))
        finally:
            await producer.close(0)

    async def _transact(self, world: World, producer: Producer, rng: Random) -> None:
        """Begin a transaction, write records and end it. Raises FatalError, and KafkaError if the producer cannot
        continue.
        """
        history = self.notes.history
        producer.begin_transaction()
        transaction = history.transaction(self.name)
        commits: list[Commit] = []
        try:
            for _ in range(rng.choice((1, 2, 4))):
                await self._send(producer, transaction, rng)
                if rng.random() < 0.3:
                    await pause(world, rng.random() * 0.3)
            if self._sleep_seconds and rng.random() < SLEEPS and not world.calm.is_set():
                await producer.flush()
                await asyncio.sleep(self._sleep_seconds)
                await self._send(producer, transaction, rng)
            if rng.random() < 0.5:
                commits.append(await self._send_offsets(producer, transaction))
            if rng.random() < ABORTS:
                if rng.random() < WRITTEN:
                    await producer.flush()  # without this flush, an abort would drop the records that are not sent yet
                await self._abort(producer, transaction)
                return
            await until_known(producer.commit_transaction)
        except AbortableError:
            await self._abort(producer, transaction)
            return
        history.ended(transaction, End.COMMITTED)
        self.notes.step(self.name)

    async def _abort(self, producer: Producer, transaction: Transaction) -> None:
        await until_known(producer.abort_transaction)
        self.notes.history.ended(transaction, End.ABORTED)
        self.notes.step(self.name)

    async def _begin_and_leave(self, producer: Producer, rng: Random) -> None:
        """Begin a transaction, write to it, and leave it open. The start of the producer's successor aborts the
        transaction.
        """
        producer.begin_transaction()
        transaction = self.notes.history.transaction(self.name)
        try:
            await self._send(producer, transaction, rng)
            await producer.flush()
        except KafkaError:
            pass  # some records may be written, but they are never committed
        await producer.close(0)
        self.notes.history.ended(transaction, End.ABORTED)  # no request will commit the transaction

    async def _send(self, producer: Producer, transaction: Transaction, rng: Random) -> asyncio.Future[Any]:
        place = Place(rng.choice(self.topics), rng.randrange(PARTITIONS))
        self._number += 1
        value = f"{self.name}/{self._number}".encode()
        send = self.notes.history.send(f"{self.name}/{self.lives}", place, value, transaction)
        future = await producer.send(place.topic, value, partition=place.index)
        future.add_done_callback(partial(self._answered, send))
        return future

    def _answered(self, send: Send, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.notes.history.acknowledged(send, future.result().offset)

    async def _send_offsets(self, producer: Producer, transaction: Transaction) -> Commit:
        self._ledger += 1
        place = Place(self.topics[0], 0)
        commit = self.notes.history.commit(self._group, place, self._ledger, transaction)
        nobody = ConsumerGroupMetadata(self._group, -1, "", None)
        try:
            await producer.send_offsets({TopicPartition(*place): self._ledger}, nobody)
        except BaseException:
            self.notes.history.commit_answered(commit, Outcome.UNKNOWN)
            raise
        self.notes.history.commit_answered(commit)
        return commit

    @property
    def group(self) -> str:
        """The name of the group whose offsets its transactions commit."""
        return self._group


async def until_known(end: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call that commits, aborts or prepares until its outcome is known, however long that takes."""
    while True:
        try:
            return await end()
        except EndNotKnown:
            continue
