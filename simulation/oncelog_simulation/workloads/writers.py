"""Idempotent producers: they send records outside transactions, with several records in flight."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from oncelog import Producer
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.workload import ClientWorkload, make_topic, pause, producer_options
from oncelog_testing.history.events import Place, Send

if TYPE_CHECKING:
    from oncelog_simulation.world import World

LINES: Final = "lines"
"""The topic of the writers, which pipelines copy and group members read."""
PARTITIONS: Final = 2
MOST_UNDER_WAY: Final = 8
"""Limit on a writer's records that are not acknowledged yet."""
SHORT_DELIVERY_MS: Final = 6_000
"""A short delivery.timeout.ms, which a producer has after some of its starts: with it, the producer gives up records
while a fault lasts.
"""
SMALL_SEGMENTS: Final = {"segment.bytes": "4096", "segment.index.bytes": "1024"}
"""Topic settings with which segments roll during a run, so that producer snapshots are written and read."""


class IdempotentWriter(ClientWorkload):
    """Writes numbered lines to the topic. The outcome of an abandoned record is unknown: the record may or may not be
    in the log, but must not be there twice.
    """

    def __init__(self, notes: Notes, name: str, topic: str = LINES, partitions: int = PARTITIONS) -> None:
        super().__init__(notes, name)
        self._topic = topic
        self._partitions = partitions

    async def prepare(self, world: World) -> None:
        await make_topic(world, self.notes, self._topic, self._partitions, SMALL_SEGMENTS)

    async def live(self, world: World) -> None:
        rng = self.random(world)
        mean = rng.choice((0.2, 0.5, 1.0))
        options: dict[str, Any] = producer_options(retry_backoff_ms=rng.choice((20, 100)))
        if rng.random() < 0.3:
            options["delivery_timeout_ms"] = SHORT_DELIVERY_MS
        async with Producer(world.bootstrap_servers, **options) as producer:
            under_way: set[asyncio.Future[Any]] = set()
            goes_on = self.counts_down(world)
            number = 0
            while goes_on:
                for _ in range(rng.choice((1, 1, 1, 4, MOST_UNDER_WAY))):
                    under_way.add(await self._send(producer, number, rng))
                    number += 1
                under_way = {each for each in under_way if not each.done()}
                if len(under_way) >= MOST_UNDER_WAY or world.calm.is_set():
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                await pause(world, rng.expovariate(1 / mean))
            if under_way:
                await asyncio.wait(under_way)

    async def _send(self, producer: Producer, number: int, rng: Random) -> asyncio.Future[Any]:
        place = Place(self._topic, rng.randrange(self._partitions))
        teller = f"{self.name}/{self.lives}"
        send = self.notes.history.send(teller, place, f"{teller}/{number}".encode())
        future = await producer.send(place.topic, send.value, partition=place.index)
        future.add_done_callback(partial(self._answered, send))
        return future

    def _answered(self, send: Send, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.notes.history.acknowledged(send, future.result().offset)
            self.notes.step(self.name)
