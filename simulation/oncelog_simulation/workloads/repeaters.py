"""Idempotent producers that send each batch again while earlier copies of it wait for the followers.

A broker recognises copies of the newest five batches of a producer (S8), and may acknowledge a copy only when the batch
is replicated. A repeater sends some batches without waiting, copies of the newest batches on the same connection, and a
copy of a new and of an old batch on another connection. The client complains if the broker that has appended a batch
refuses a copy of it, if two acknowledgements of a batch have different offsets, or if the copy of an old batch gets
DUPLICATE_SEQUENCE_NUMBER before the batch is replicated. The judge `committed` compares all other acknowledgements
with the high watermarks.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from oncelog.clock import now_ms
from oncelog.errors import ConnectionFailed, KafkaError
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.wire import V1_PRODUCE, Answered, Wire, code, one_record
from oncelog_simulation.workloads.workload import ClientWorkload, make_topic, pause
from oncelog_simulation.workloads.writers import SMALL_SEGMENTS
from oncelog_testing.history.events import Place, Send

if TYPE_CHECKING:
    from oncelog_simulation.world import World

REPEATED: Final = "repeated"
PARTITIONS: Final = 2
REMEMBERED: Final = 5
"""Number of a producer's newest batches of which a broker recognises copies (S8)."""


class Repeater(ClientWorkload):
    """Plays one round after another, each with a new producer id and one partition."""

    def __init__(self, notes: Notes, name: str) -> None:
        super().__init__(notes, name)
        self._rounds = 0

    async def prepare(self, world: World) -> None:
        await make_topic(world, self.notes, REPEATED, PARTITIONS, SMALL_SEGMENTS)

    async def live(self, world: World) -> None:
        rng = self.random(world)
        async with Wire(world.bootstrap_servers) as wire, Wire(world.bootstrap_servers) as other:
            for each in (wire, other):
                await each.follow([REPEATED])
            goes_on = self.counts_down(world)
            while goes_on:
                self._rounds += 1
                try:
                    _, writer = await wire.until_decided(wire.new_producer_id, code)
                    await Round(self, world, wire, other, rng, writer).play()
                except KafkaError as error:
                    world.note(self.name, "a round was broken off", error=error.code.name)
                    await asyncio.sleep(0.1)
                else:
                    self.notes.step(self.name)
                await pause(world, rng.expovariate(1))

    @property
    def teller(self) -> str:
        """The producer's name in the history; each round has another name."""
        return f"{self.name}/{self.lives}.{self._rounds}"


class Round:
    """Some batches of one producer, each with its copies."""

    def __init__(
        self, repeater: Repeater, world: World, wire: Wire, other: Wire, rng: Random, writer: ProducerIdAndEpoch
    ) -> None:
        """`wire` and `other` have separate connections, so that the response for a copy need not wait for the response
        for its batch.
        """
        self._repeater = repeater
        self._world = world
        self._wire = wire
        self._other = other
        self._rng = rng
        self._writer = writer
        self._place = Place(REPEATED, rng.randrange(PARTITIONS))
        self._batches: list[tuple[Send, bytes]] = []
        self._succeeded: list[tuple[Send, int]] = []
        """The old batches whose copy got DUPLICATE_SEQUENCE_NUMBER, each with the largest high watermark of its
        partition at that time.
        """

    async def play(self) -> None:
        """Send the batches and the copies, and then each batch without an acknowledgement until a broker decides."""
        for sequence in range(self._rng.randint(1, 2 * REMEMBERED)):
            value = f"{self._repeater.teller}/{sequence}".encode()
            send = self._repeater.notes.history.send(self._repeater.teller, self._place, value)
            batch = one_record(value, self._writer, sequence, now_ms(), is_transactional=False)
            self._batches.append((send, batch))
        newest = self._batches[-REMEMBERED:]
        led = self._leader()
        appended = [self._send_once(self._wire, *each) for each in self._batches]
        repeated = [self._send_once(self._wire, *each) for each in newest]
        await asyncio.sleep(self._rng.choice((0.0005, 0.001, 0.002, 0.01)))
        strays = [self._send_once(self._other, *each) for each in self._rng.sample(newest, 1)]
        old = [self._send_old(*each) for each in self._batches[:-REMEMBERED][:1]]
        await asyncio.wait([*appended, *repeated, *strays, *old])
        is_all_appended = all(answer is not None and not answer.code for answer in (task.result() for task in appended))
        if is_all_appended and led is not None and led == self._leader():
            for (send, _), task in zip(newest, repeated, strict=True):
                self._check_copy(send, task.result())
        await self._finish()
        self._check_old()

    def _check_copy(self, send: Send, answer: Answered | None) -> None:
        """Complain if a copy of one of the newest batches was refused by the process that had appended the batch in the
        same leader epoch.
        """
        if answer is not None and answer.code and not answer.code.retriable:
            self._complain(f"a copy of {send.value!r} at {send.offset} was refused: {answer.code.name}")

    def _send_once(self, wire: Wire, send: Send, batch: bytes) -> asyncio.Task[Answered | None]:
        return asyncio.create_task(self._once(wire, send, batch))

    async def _once(self, wire: Wire, send: Send, batch: bytes) -> Answered | None:
        """Send the batch once; returns None if no response arrives."""
        try:
            answer = await wire.produce(self._place, batch, None, V1_PRODUCE)
        except (ConnectionFailed, KafkaError):
            return None
        if not answer.code:
            self._note(send, answer.offset)
        return answer

    def _send_old(self, send: Send, batch: bytes) -> asyncio.Task[None]:
        """Send a copy of a batch that the leader no longer remembers. Clients treat the error
        DUPLICATE_SEQUENCE_NUMBER as a success, so the batch must then be replicated (rule S12).
        """

        async def repeat() -> None:
            with suppress(ConnectionFailed, KafkaError):
                answer = await self._other.produce(self._place, batch, None, V1_PRODUCE)
                if answer.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    self._succeeded.append((send, self._repeater.notes.history.exposed(self._place)))

        return asyncio.create_task(repeat())

    def _check_old(self) -> None:
        """Complain if the copy of an old batch got DUPLICATE_SEQUENCE_NUMBER before the batch was replicated."""
        for send, high_watermark in self._succeeded:
            if send.offset >= high_watermark:
                what = f"a copy of the old batch {send.value!r} at {send.offset} got DUPLICATE_SEQUENCE_NUMBER"
                self._complain(f"{what} before the batch was replicated: no high watermark was above {high_watermark}")

    async def _finish(self) -> None:
        """Send each batch that has no acknowledgement again, in order. Raises KafkaError if a broker refuses a batch
        because it does not know the earlier batches of the producer.
        """
        for send, batch in self._batches:
            if send.offset < 0:
                answer = await self._wire.until_decided(
                    partial(self._wire.produce, self._place, batch, None, V1_PRODUCE), code
                )
                if answer.code:
                    raise KafkaError(answer.code)
                self._note(send, answer.offset)

    def _note(self, send: Send, offset: int) -> None:
        history = self._repeater.notes.history
        if send.offset < 0:
            history.acknowledged(send, offset)
        elif send.offset != offset:
            self._complain(f"{send.value!r} was acknowledged at {send.offset} and at {offset}")
        else:
            history.on_acknowledged(self._place, offset)

    def _leader(self) -> tuple[object, int] | None:
        """Return the process that leads the partition, and the leader epoch; None if no broker leads."""
        for machine in self._world.brokers.values():
            if machine.broker is not None:
                partition = machine.broker.parts.replication.replicas.hosted(*self._place)
                if partition is not None and partition.leads:
                    return machine.process, partition.leader_epoch
        return None

    def _complain(self, what: str) -> None:
        self._repeater.notes.complain(self._world, self._repeater.name, what)
