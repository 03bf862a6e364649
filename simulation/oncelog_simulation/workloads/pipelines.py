"""Consume, process, produce: pipelines that copy lines in transactions, and are killed and replaced in the middle of a
transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import oncelog
from oncelog.consume_process_produce import consume_process_produce
from oncelog.errors import AbortableError, EndNotKnown, FatalError, KafkaError
from oncelog_simulation.workloads.notes import PATIENCE_MS, Notes
from oncelog_simulation.workloads.sleepers import SHORT_SLEEP, SLACK_SECONDS
from oncelog_simulation.workloads.workload import (
    COMMON,
    ClientWorkload,
    long_poll_options,
    make_topic,
    pause,
    producer_options,
)
from oncelog_simulation.workloads.writers import LINES, SMALL_SEGMENTS
from oncelog_simulation.workloads.writers import PARTITIONS as LINE_PARTITIONS
from oncelog_testing.history.events import End, Place, Send, Transaction

if TYPE_CHECKING:
    from oncelog_simulation.world import World

COPIES: Final = "copies"
PARTITIONS: Final = 2
GROUP: Final = "copiers"
RECORDS_PER_TRANSACTION: Final = 10
TRANSACTION_TIMEOUT_MS: Final = 20_000
SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 1_500
USUAL_POLL_MS: Final = 500
"""fetch.max.wait.ms, but for plans of days (`long_poll_options`)."""
SLOW: Final = 0.06
"""Fraction of the transactions that last so long that the group gives the member's partitions to another member
meanwhile.
"""
SLOW_SECONDS: Final = (5.0, 9.0)
MAX_POLL_MS: Final = 4_000
GIVES_UP: Final = 0.05
"""Fraction of the transactions that a client abandons on purpose."""
OFFSETS_RETENTION: Final = "offsets.retention.minutes"
LIFE_SECONDS: Final = (3.0, 15.0)
"""Minimum and maximum virtual seconds after which a pair of clients (a consumer and its producer) is replaced by a
successor, which starts while its predecessor may still work. In a plan of days they are `Plan.leisure` times longer,
and nobody works for some hours before the successor starts.
"""


class GivenUp(Exception):
    """Raised to abandon a transaction on purpose."""


class NotingProducer(oncelog.Producer):
    """A producer that records the beginning and the end of each of its transactions in the history."""

    notes: Notes
    teller: str
    number = 0
    open: Transaction | None = None

    def transaction(self) -> Any:
        return _NotedTransaction(super().transaction(), self)

    async def send_offsets(self, offsets: Mapping[Any, Any], group: oncelog.ConsumerGroupMetadata) -> None:
        assert self.open is not None
        history = self.notes.history
        commits = [history.commit(group.group_id, Place(*place), at.offset, self.open) for place, at in offsets.items()]
        await super().send_offsets(offsets, group)
        for commit in commits:
            history.commit_answered(commit)

    async def commit_transaction(self) -> None:
        await super().commit_transaction()
        self.end(End.COMMITTED)

    async def abort_transaction(self) -> None:
        await super().abort_transaction()
        self.end(End.ABORTED)

    def end(self, end: End) -> None:
        """Record in the history how the open transaction has ended, as far as its producer knows."""
        if self.open is not None:
            self.notes.history.ended(self.open, end)
            self.open = None
            if end is End.COMMITTED:
                self.notes.step(self.teller)


class _NotedTransaction:
    def __init__(self, inner: Any, producer: NotingProducer) -> None:
        self._inner = inner
        self._producer = producer

    async def __aenter__(self) -> object:
        await self._inner.__aenter__()
        self._producer.open = self._producer.notes.history.transaction(self._producer.teller)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._inner.__aexit__(kind, error, traceback)
        except EndNotKnown:
            raise  # the outcome is unknown, and the caller calls commit_transaction again
        except AbortableError:
            self._producer.end(End.ABORTED)
            raise
        except BaseException:
            self._producer.end(End.UNKNOWN)
            raise
        if error is None:
            self._producer.end(End.COMMITTED)
        elif isinstance(error, FatalError | asyncio.CancelledError | EndNotKnown):
            self._producer.end(End.UNKNOWN)
        else:
            self._producer.end(End.ABORTED)


class Pipeline(ClientWorkload):
    """One member of the group; the group must copy each line once."""

    def __init__(self, notes: Notes, name: str) -> None:
        super().__init__(notes, name)
        self._number = 0
        self._leisure = 1.0
        """`Plan.leisure` of the run."""

    async def prepare(self, world: World) -> None:
        self._leisure = world.plan.leisure
        await make_topic(world, self.notes, LINES, LINE_PARTITIONS, SMALL_SEGMENTS)
        await make_topic(world, self.notes, COPIES, PARTITIONS, SMALL_SEGMENTS)
        self.notes.groups[GROUP] = [Place(LINES, index) for index in range(LINE_PARTITIONS)]

    async def live(self, world: World) -> None:
        """Run one pair of clients (a consumer and its producer) after another. Each pair starts while its predecessor
        may still be working.
        """
        rng = self.random(world)
        elder: asyncio.Task[None] | None = None
        younger: asyncio.Task[None] | None = None
        try:
            while not world.calm.is_set():
                elder, younger = younger, asyncio.create_task(self._one_pair(world, rng))
                waits = [asyncio.create_task(world.calm.wait())]
                life = rng.uniform(*LIFE_SECONDS) * world.plan.leisure
                await asyncio.wait([*waits, younger], timeout=life, return_when="FIRST_COMPLETED")
                waits[0].cancel()
                if elder is not None:
                    await self._end(world, elder)
                if world.plan.leisure > 1:
                    await self._end(world, younger)
                    younger = None
                    await self._nap(world, rng)
            if younger is None or younger.done():
                if younger is not None:
                    await self._end(world, younger)
                younger = asyncio.create_task(self._one_pair(world, rng))
            await self._until_all_is_copied(world, younger)
        finally:
            for each in (elder, younger):
                if each is not None:
                    await self._end(world, each)

    async def _nap(self, world: World, rng: Random) -> None:
        """Wait, in a plan of days, for less than the time after which the offsets of a group without members expire."""
        limit = int(world.plan.settings[OFFSETS_RETENTION]) * 60
        await pause(world, rng.uniform(*SHORT_SLEEP) * (limit - SLACK_SECONDS) / world.plan.pace)

    async def _end(self, world: World, pair: asyncio.Task[None]) -> None:
        """Kill the pair of clients, whatever they are doing."""
        pair.cancel()
        await asyncio.wait([pair])
        error = None if pair.cancelled() else pair.exception()
        if isinstance(error, KafkaError):
            world.note(self.name, "a pair of clients has ended", error=error.code.name)
        elif error is not None:
            raise error

    async def _until_all_is_copied(self, world: World, pair: asyncio.Task[None]) -> None:
        """Wait until the writers have ended and the committed offsets have reached the end of the lines."""
        async with oncelog.Admin(world.bootstrap_servers, **COMMON) as admin:
            while not await _is_all_copied(admin) and not self.notes.may_hang:
                if pair.done():
                    await self._end(world, pair)
                    pair = asyncio.create_task(self._one_pair(world, self.random(world)))
                await asyncio.sleep(0.5)
        pair.cancel()

    async def _one_pair(self, world: World, rng: Random) -> None:
        producer, consumer = self._clients(world)
        try:
            await producer.start()
            await consumer.start()
            consumer.subscribe([LINES])
            while True:
                try:
                    await consume_process_produce(
                        consumer, producer, partial(self._process, producer, rng), max_records=RECORDS_PER_TRANSACTION
                    )
                except GivenUp:
                    continue
        finally:
            await consumer.close(1_000)
            await producer.close(0)

    def _clients(self, world: World) -> tuple[NotingProducer, oncelog.Consumer]:
        leisure = world.plan.leisure
        options = producer_options(transaction_timeout_ms=round(TRANSACTION_TIMEOUT_MS * leisure))
        producer = NotingProducer(world.bootstrap_servers, transactional_id=self.name, **options)
        producer.notes, producer.teller = self.notes, self.name
        consumer = oncelog.Consumer(
            world.bootstrap_servers,
            **{**COMMON, "default_api_timeout_ms": PATIENCE_MS, **long_poll_options(world, USUAL_POLL_MS)},
            group_id=GROUP,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=round(SESSION_MS * leisure),
            heartbeat_interval_ms=round(HEARTBEAT_MS * leisure),
            max_poll_interval_ms=round(MAX_POLL_MS * leisure),
            allow_auto_create_topics=False,
        )
        return producer, consumer

    async def _process(self, producer: NotingProducer, rng: Random, records: list[oncelog.ConsumerRecord]) -> None:
        transaction = producer.open
        assert transaction is not None
        sent = []
        for record in records:
            send = self._output(Place(record.topic, record.partition), record.offset, transaction)
            future = await producer.send(send.place.topic, send.value, partition=send.place.index)
            future.add_done_callback(partial(self._answered, send))
            sent.append(future)
        if rng.random() < SLOW:
            await asyncio.sleep(rng.uniform(*SLOW_SECONDS) * self._leisure)
        if rng.random() < GIVES_UP:
            await asyncio.gather(*sent)
            raise GivenUp

    def _output(self, source: Place, offset: int, transaction: Transaction) -> Send:
        self._number += 1
        place = Place(COPIES, self._number % PARTITIONS)
        value = f"{self.name}/{self._number} {source}@{offset}".encode()
        send = self.notes.history.send(f"{self.name}/{transaction.number}", place, value, transaction)
        self.notes.history.derived(send, GROUP, source, offset)
        return send

    def _answered(self, send: Send, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.notes.history.acknowledged(send, future.result().offset)


async def _is_all_copied(admin: oncelog.Admin) -> bool:
    from oncelog.admin import LATEST_TIMESTAMP
    from oncelog_protocol.messages.fetch import IsolationLevel

    lines = [oncelog.TopicPartition(LINES, index) for index in range(LINE_PARTITIONS)]
    try:
        ends = await admin.list_offsets(
            dict.fromkeys(lines, LATEST_TIMESTAMP), isolation_level=IsolationLevel.READ_COMMITTED
        )
        committed = await admin.groups.offsets(GROUP, require_stable=True)
    except KafkaError:
        return False
    return all(
        place in committed and committed[place].offset >= end.offset for place, end in ends.items() if end.offset
    )
