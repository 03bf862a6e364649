"""Runs consume-process-produce with oncelog's own `consume_process_produce`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any

import oncelog
from oncelog.consume_process_produce import consume_process_produce
from oncelog.errors import ConnectionFailed, EndNotKnown, FatalError
from oncelog_testing.history.events import End, Place, Send, Transaction
from soak.pipelines import RECORDS_PER_TRANSACTION, SESSION_MS, TRANSACTION_TIMEOUT_MS, GivenUp, Notes, Pipeline

ABDICATION_SECONDS = 15.0
"""A pair of clients that was taken over must notice that within this number of seconds, if it had any work."""
LOOK_SECONDS = 0.1


class NotingProducer(oncelog.Producer):
    """A producer that records how its transactions begin and end."""

    notes: Notes
    open: Transaction | None = None

    def transaction(self) -> Any:
        return NotedTransaction(super().transaction(), self)

    async def send_offsets(self, offsets: Mapping[Any, Any], group: oncelog.ConsumerGroupMetadata) -> None:
        assert self.open is not None
        await super().send_offsets(offsets, group)
        self.notes.commit_offsets({Place(*place): at.offset for place, at in offsets.items()}, self.open)

    async def commit_transaction(self) -> None:
        await super().commit_transaction()
        self.end(End.COMMITTED)

    async def abort_transaction(self) -> None:
        await super().abort_transaction()
        self.end(End.ABORTED)

    def end(self, end: End) -> None:
        if self.open is not None:
            self.notes.ended(self.open, end)
            self.open = None


class NotedTransaction:
    def __init__(self, inner: Any, producer: NotingProducer) -> None:
        self._inner = inner
        self._producer = producer

    async def __aenter__(self) -> object:
        await self._inner.__aenter__()
        self._producer.open = self._producer.notes.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._inner.__aexit__(kind, error, traceback)
        except EndNotKnown:
            raise  # the outcome is unknown, so the application calls commit_transaction again
        except oncelog.errors.AbortableError:
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


class OurPipeline(Pipeline):
    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        """Run one pair of clients after another; each pair begins while the previous pair may still be working."""
        running: asyncio.Task[None] | None = None
        while not self.is_over.is_set():
            leaves_quietly = self.notes.rng.random() < 0.5
            if running is not None and leaves_quietly:
                await self._end(running)
                running = None
            elder, running = running, asyncio.create_task(self._one_life())
            if elder is not None:
                await asyncio.wait([elder], timeout=ABDICATION_SECONDS)
                await self._end(elder, is_taken_over=True)
            await self._until_over(running, self.notes.lives())
        if running is not None:
            await self._end(running)

    async def _until_over(self, running: asyncio.Task[None], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not self.is_over.is_set() and loop.time() < deadline and not running.done():
            await asyncio.wait([running], timeout=LOOK_SECONDS)

    async def _end(self, running: asyncio.Task[None], *, is_taken_over: bool = False) -> None:
        """Stop a pair of clients, whatever it is doing. With `is_taken_over` the pair may already have noticed that
        another pair has taken over.
        """
        running.cancel()
        await asyncio.wait([running])
        if running.cancelled():
            return
        error = running.exception()
        if isinstance(error, FatalError) and is_taken_over:
            self.notes.progress.mishap(self.name, f"taken over: {error.code.name}")
        elif error is not None:
            raise error

    async def _one_life(self) -> None:
        producer, consumer = self._clients()
        while not await self._started(producer, consumer):
            await asyncio.sleep(LOOK_SECONDS)
            producer, consumer = self._clients()
        try:
            consumer.subscribe([self.notes.job.source])
            while True:
                try:
                    await consume_process_produce(
                        consumer, producer, partial(self._process, producer), max_records=RECORDS_PER_TRANSACTION
                    )
                except GivenUp:
                    continue
        finally:
            await consumer.close()
            await producer.close(0)

    def _clients(self) -> tuple[NotingProducer, oncelog.Consumer]:
        notes, job = self.notes, self.notes.job
        common = {"request_timeout_ms": 5000, "reconnect_backoff_max_ms": 500}
        producer = NotingProducer(
            job.addresses,
            **common,
            transactional_id=notes.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            linger_ms=0,
        )
        producer.notes = notes
        consumer = oncelog.Consumer(
            job.addresses,
            **common,
            group_id=job.group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            allow_auto_create_topics=False,
        )
        return producer, consumer

    async def _started(self, producer: oncelog.Producer, consumer: oncelog.Consumer) -> bool:
        """Start producer and consumer, and return whether both have started; the start fails immediately if no broker
        is reachable.
        """
        try:
            await producer.start()
            await consumer.start()
        except ConnectionFailed:
            await producer.close(0)
            self.notes.progress.mishap(self.name, "started while there was no broker")
            return False
        except BaseException:
            await consumer.close()
            await producer.close(0)
            raise
        return True

    async def _process(self, producer: NotingProducer, records: list[oncelog.ConsumerRecord]) -> None:
        notes, transaction = self.notes, producer.open
        assert transaction is not None
        sent = []
        for record in records:
            send = notes.output(Place(record.topic, record.partition), record.offset, transaction)
            future = await producer.send(send.place.topic, send.value, partition=send.place.index)
            future.add_done_callback(partial(self._answered, send))
            sent.append(future)
        if notes.gives_up():
            await asyncio.gather(*sent)
            raise GivenUp

    def _answered(self, send: Send, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.notes.history.acknowledged(send, future.result().offset)
