"""Producers that were fenced and do not know that yet, and requests that are repeated, late or out of order.

Each round plays one case (a sequence of requests of which a broker must refuse some) with raw requests and one
transactional id. The client complains immediately if a broker accepts a request that it must refuse. The history notes
the records of a zombie as failed, or as part of an aborted transaction: no reader may see them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from oncelog.clock import now_ms
from oncelog.errors import KafkaError
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.wire import (
    BUSY,
    MOVED,
    V1_END,
    V1_PRODUCE,
    V2_END,
    V2_PRODUCE,
    Answered,
    Wire,
    code,
    one_record,
)
from oncelog_simulation.workloads.workload import ClientWorkload, make_topic, pause
from oncelog_simulation.workloads.writers import SMALL_SEGMENTS
from oncelog_testing.history.events import End, Place, Send, Transaction

if TYPE_CHECKING:
    from oncelog_simulation.world import World

T = TypeVar("T")

HAUNTED: Final = "haunted"
PARTITIONS: Final = 2
SHORT_TIMEOUT_MS: Final = 1_000
SLEEP_SECONDS: Final = 3.0
"""Virtual seconds for which a producer sleeps in a transaction with the short timeout; coordinators look for such
transactions once a second.
"""
TIMEOUT_MS: Final = 10_000
REMEMBERED: Final = 5
"""Number of a producer's last batches that a broker recognises as duplicates when they are repeated (S8)."""


class Zombie(ClientWorkload):
    """Plays one case after another, with its own transactional id."""

    def __init__(self, notes: Notes, name: str) -> None:
        super().__init__(notes, name)
        self._rounds = 0
        self._values = 0
        self.left_open: str | None = None
        """The transactional id whose transaction has no timeout and may be open, because a story did not end; None if
        there is no such transaction."""

    async def prepare(self, world: World) -> None:
        await make_topic(world, self.notes, HAUNTED, PARTITIONS, SMALL_SEGMENTS)

    async def live(self, world: World) -> None:
        rng = self.random(world)
        async with Wire(world.bootstrap_servers) as wire:
            await wire.follow([HAUNTED])
            goes_on = self.counts_down(world)
            while goes_on:
                self._rounds += 1
                story = Story(self, world, wire, rng)
                name, play = rng.choice(story.plays)
                try:
                    await play()
                except KafkaError as error:
                    world.note(self.name, "a story was broken off", story=name, error=error.code.name)
                    await asyncio.sleep(0.1)
                else:
                    self.notes.step(self.name)
                await pause(world, rng.expovariate(1))
            if self.left_open is not None:
                await wire.until_decided(partial(wire.init, self.left_open, TIMEOUT_MS), code, BUSY)

    def next_value(self) -> bytes:
        """Return a value that no other record of this run has."""
        self._values += 1
        return f"{self.name}/{self.lives}.{self._values}".encode()

    @property
    def teller(self) -> str:
        """The producer's name in the history; each round has another name."""
        return f"{self.name}/{self.lives}.{self._rounds}"


class Story:
    """Plays one case with one zombie. `writer` is the zombie's current producer id and epoch."""

    def __init__(self, zombie: Zombie, world: World, wire: Wire, rng: Random) -> None:
        self._zombie = zombie
        self._world = world
        self._wire = wire
        self._rng = rng
        self._history = zombie.notes.history
        self._id = zombie.name
        self._is_v2 = rng.random() < 0.5
        self._writer = ProducerIdAndEpoch(-1, -1)
        self._sequences: defaultdict[Place, int] = defaultdict(int)
        self._transaction: Transaction | None = None
        self._added: set[Place] = set()
        self.plays: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("taken over", self._taken_over),
            ("too late", self._too_late),
            ("race with the end", self._race),
            ("sent twice", self._sent_twice),
            ("gap", self._gap),
            ("ended twice", self._ended_twice),
            ("without a transaction", self._without_transaction),
            ("deserted", self._deserted),
            ("timed out", self._timed_out),
            ("epochs of its own", self._own_epochs),
            ("kept open", self._kept_open),
            ("in one epoch", self._in_one_epoch),
            ("after a marker", self._after_a_marker),
        ]

    # --- the cases

    async def _taken_over(self) -> None:
        """The old producer writes, its successor takes over the transactional id, and the old producer continues."""
        await self._begin()
        place = self._place()
        await self._write(place)
        elder, transaction = self._writer, self._transaction
        sequence = self._sequences[place]
        await self._take_over()
        assert transaction is not None
        if self._rng.random() < 0.5:  # the successor has already started
            self._transaction = self._history.transaction(self._zombie.teller)
            await self._write(self._place())
        late = await self._produce_once(place, elder, sequence, transaction)
        self._must_be_refused("a record of a fenced producer", late)
        if not self._is_v2:
            added = await self._decided(partial(self._wire.add, self._id, elder, self._place()))
            self._must_be_refused("AddPartitionsToTxn of a fenced producer", added)
        version = V2_END if self._is_v2 else V1_END
        ended = await self._decided(partial(self._wire.end, self._id, elder, commits=True, version=version))
        self._must_be_refused("EndTxn of a fenced producer", ended)
        if self._transaction is not None:
            await self._end(commits=True)

    async def _too_late(self) -> None:
        """A record arrives after its transaction has ended."""
        await self._begin()
        place = self._place()
        await self._write(place)
        elder, transaction, sequence = self._writer, self._transaction, self._sequences[place]
        assert transaction is not None
        await self._end(commits=self._rng.random() < 0.5)
        await pause(self._world, self._rng.choice((0.0, 0.05, 0.5)))
        # As long as the marker is not written, the broker accepts the record, which then belongs to the transaction.
        await self._produce_late(place, elder, sequence, transaction)

    async def _race(self) -> None:
        """A record and the request that ends its transaction are in flight simultaneously."""
        await self._race_once()
        for _ in range(self._rng.choice((0, 3))):
            await self._race_once()

    async def _race_once(self) -> None:
        await self._begin()
        place, other = self._place(), self._place()
        await self._write(place)
        if not self._is_v2:
            await self._add(other)
        elder, transaction, sequence = self._writer, self._transaction, self._sequences[other]
        assert transaction is not None
        commits = self._rng.random() < 0.3
        late = asyncio.create_task(self._produce_late(other, elder, sequence, transaction))
        await asyncio.sleep(self._rng.choice((0.0, 0.0005, 0.001, 0.002, 0.01)))
        try:
            await self._end(commits=commits)
        finally:
            await asyncio.wait([late])
        late.result()

    async def _sent_twice(self) -> None:
        """A batch is repeated immediately, and again after more batches than a broker remembers."""
        await self._begin()
        place = self._place()
        send, batch = self._note_record(place, self._writer, self._sequences[place], self._transaction)
        first = await self._produce(place, batch)
        self._note_answer(send, first)
        if first.code:
            return
        self._sequences[place] += 1
        again = await self._produce(place, batch)
        if not again.code and again.offset != first.offset:
            self._complain(f"{send.value!r} was appended at {first.offset} and again at {again.offset}")
        for _ in range(self._rng.choice((0, REMEMBERED + 1))):
            await self._write(place)
        once_more = await self._produce(place, batch)
        if not once_more.code and once_more.offset != first.offset:
            self._complain(f"{send.value!r} was appended at {first.offset} and once more at {once_more.offset}")
        await self._end(commits=True)

    async def _gap(self) -> None:
        """A batch skips a sequence number; another batch starts an epoch with a sequence above 0."""
        await self._begin()
        place = self._place()
        await self._write(place)
        beyond = await self._produce_once(place, self._writer, self._sequences[place] + 3, self._transaction)
        self._must_be_refused("a record behind a gap", beyond)
        newer = ProducerIdAndEpoch(self._writer.producer_id, self._writer.epoch + 1)
        ahead = await self._produce_once(place, newer, 4, self._transaction)
        self._must_be_refused("an epoch that begins at sequence 4", ahead)
        await self._end(commits=True)

    async def _after_a_marker(self) -> None:
        """With transactions V2, the marker of a transaction has the next epoch of the producer already. The first batch
        of that epoch continues the sequences of the previous epoch, or has a later sequence.
        """
        self._is_v2 = True
        await self._begin()
        place = self._place()
        await self._write(place)
        next_sequence = self._sequences[place]
        await self._end(commits=self._rng.random() < 0.5)
        self._sequences.clear()
        self._transaction = self._history.transaction(self._zombie.teller)
        sequence = next_sequence + self._rng.choice((0, 3))
        ahead = await self._produce_once(place, self._writer, sequence, self._transaction)
        self._must_be_refused(f"a transaction that begins at sequence {sequence} after a marker", ahead)
        await self._write(place)
        await self._end(commits=True)

    async def _ended_twice(self) -> None:
        """The end of a transaction is requested again, with the same and with the opposite outcome."""
        await self._begin()
        await self._write(self._place())
        elder, commits = self._writer, self._rng.random() < 0.5
        await self._end(commits=commits)
        version = V2_END if self._is_v2 else V1_END
        opposite = await self._decided(
            partial(self._wire.end, self._id, elder, commits=not commits, version=version), BUSY
        )
        self._must_be_refused("the opposite end of a transaction that has ended", opposite)

    async def _without_transaction(self) -> None:
        """An idempotent producer sends each batch three times simultaneously."""
        _, self._writer = await self._decided(self._wire.new_producer_id)
        for _ in range(3):
            place = self._place()
            send, batch = self._note_record(place, self._writer, self._sequences[place], None)
            self._sequences[place] += 1
            copies = [asyncio.create_task(self._produce(place, batch)) for _ in range(3)]
            await asyncio.wait(copies)
            offsets = {copy.result().offset for copy in copies if not copy.result().code}
            if len(offsets) > 1:
                self._complain(f"{send.value!r} was appended at {sorted(offsets)}")
            if offsets:
                self._history.acknowledged(send, min(offsets))

    async def _own_epochs(self) -> None:
        """An idempotent producer increments its own epoch (S9), and then a batch of the previous epoch is sent."""
        _, elder = await self._decided(self._wire.new_producer_id)
        place = self._place()
        await self._produce_once(place, elder, 0, None)
        newer = ProducerIdAndEpoch(elder.producer_id, elder.epoch + 1)
        ahead = await self._produce_once(place, newer, 4, None)
        self._must_be_refused("an epoch that begins at sequence 4", ahead)
        if not (await self._produce_once(place, newer, 0, None)).code:
            late = await self._produce_once(place, elder, 1, None)
            self._must_be_refused("a record of the epoch before", late)

    async def _deserted(self) -> None:
        """A producer does not end its transaction, which the coordinator must abort when its timeout has passed."""
        self._id = f"{self._id}-{self._zombie.teller}"
        await self._begin()
        assert self._transaction is not None
        transaction = self._transaction
        await self._write(self._place())
        self._history.ended(transaction, End.ABORTED)

    async def _timed_out(self) -> None:
        """A producer sleeps for longer than its transaction timeout, and goes on as if the transaction were open. The
        history finds out if that succeeds although the coordinator has aborted the transaction.
        """
        self._id = f"{self._id}-slow"
        _, self._writer = await self._decided(partial(self._wire.init, self._id, SHORT_TIMEOUT_MS), BUSY)
        transaction = self._transaction = self._history.transaction(self._zombie.teller)
        await self._write(self._place())
        await asyncio.sleep(SLEEP_SECONDS)
        try:
            await self._write(self._place())
        except KafkaError:
            self._history.ended(transaction, End.ABORTED)  # no request will commit the transaction
            return
        await self._end(commits=True)

    async def _kept_open(self) -> None:
        """A successor takes over and keeps the open transaction (KIP-939), which only the successor may end."""
        self._id = self._zombie.left_open = f"{self._id}-two-phase"
        await self._begin(is_two_phase=True)
        await self._write(self._place())
        elder, commits = self._writer, self._rng.random() < 0.5
        _, self._writer = await self._decided(partial(self._wire.init, self._id, TIMEOUT_MS, is_two_phase=True), BUSY)
        await pause(self._world, self._rng.choice((0.0, 0.5, 2.0)))
        version = V2_END if self._is_v2 else V1_END
        ended = await self._decided(partial(self._wire.end, self._id, elder, commits=not commits, version=version))
        self._must_be_refused("EndTxn of a producer whose transaction was taken over", ended)
        if not self._is_v2:
            added = await self._decided(partial(self._wire.add, self._id, elder, self._place()))
            self._must_be_refused("AddPartitionsToTxn of a producer whose transaction was taken over", added)
        await self._end(commits=commits)
        self._zombie.left_open = None

    async def _in_one_epoch(self) -> None:
        """A producer has several transactions in one epoch, as clients had before transactions V2. A record of each
        transaction is in flight when the transaction ends.

        Before V2, a broker counts a late copy of a request as part of the next transaction. After a request without a
        response, the next transaction could therefore not be judged, so this case ends.
        """
        self._is_v2 = False
        await self._begin()
        for _ in range(self._rng.choice((2, 4, 6))):
            transaction = self._transaction = self._history.transaction(self._zombie.teller)
            self._added.clear()
            place, other, commits = self._place(), self._place(), self._rng.random() < 0.5
            await self._write(place)
            await self._add(other)
            writer, sequence = self._writer, self._sequences[other]
            late = asyncio.create_task(self._produce_once(other, writer, sequence, transaction))
            await asyncio.sleep(self._rng.choice((0.0, 0.0005, 0.001, 0.002, 0.01)))
            try:
                ended, _ = await self._wire.end(self._id, writer, commits=commits, version=V1_END)
            finally:
                await asyncio.wait([late])
            if ended or late.result().attempts > 1:
                return
            self._history.ended(transaction, End.COMMITTED if commits else End.ABORTED)
            self._transaction = None
            self._sequences[other] += not late.result().code

    # --- steps

    async def _begin(self, *, is_two_phase: bool = False) -> None:
        await self._take_over(is_two_phase=is_two_phase)
        self._transaction = self._history.transaction(self._zombie.teller)

    async def _take_over(self, *, is_two_phase: bool = False) -> None:
        """Take over the transactional id with InitProducerId, which aborts the open transaction."""
        _, self._writer = await self._decided(partial(self._wire.init, self._id, TIMEOUT_MS), BUSY)
        if is_two_phase:  # the first request has ended the open transaction, so this one keeps none open
            _, self._writer = await self._decided(
                partial(self._wire.init, self._id, TIMEOUT_MS, is_two_phase=True), BUSY
            )
        self._sequences.clear()
        self._added.clear()
        if self._transaction is not None:
            self._history.ended(self._transaction, End.ABORTED)
            self._transaction = None

    async def _add(self, place: Place) -> None:
        if place not in self._added:
            added = await self._decided(partial(self._wire.add, self._id, self._writer, place), BUSY)
            if added:
                raise KafkaError(added)
            self._added.add(place)

    async def _write(self, place: Place) -> None:
        """Write a record in the open transaction. Raises KafkaError."""
        if not self._is_v2:
            await self._add(place)
        answer = await self._produce_once(place, self._writer, self._sequences[place], self._transaction)
        if answer.code:
            raise KafkaError(answer.code)
        self._sequences[place] += 1

    async def _end(self, *, commits: bool) -> None:
        transaction = self._transaction
        assert transaction is not None
        version = V2_END if self._is_v2 else V1_END
        self._transaction = None
        # The request is repeated as long as no broker has decided; CONCURRENT_TRANSACTIONS means that the end of the
        # transaction is decided.
        ended, self._writer = await self._decided(
            partial(self._wire.end, self._id, self._writer, commits=commits, version=version), BUSY
        )
        if ended:
            raise KafkaError(ended)
        self._history.ended(transaction, End.COMMITTED if commits else End.ABORTED)

    async def _produce_once(
        self, place: Place, writer: ProducerIdAndEpoch, sequence: int, transaction: Transaction | None
    ) -> Answered:
        """Send a new record until it is accepted or refused."""
        send, batch = self._note_record(place, writer, sequence, transaction)
        answer = await self._produce(place, batch)
        self._note_answer(send, answer)
        return answer

    async def _produce_late(
        self, place: Place, writer: ProducerIdAndEpoch, sequence: int, transaction: Transaction
    ) -> Answered:
        """Send a new record of a transaction that may end before the record arrives. Until the record is acknowledged,
        the history counts it as a transaction of its own, because this client may be killed after the commit without
        a response to the record.
        """
        send, batch = self._note_record(place, writer, sequence, self._history.transaction(self._zombie.teller))
        answer = await self._produce(place, batch)
        if not answer.code:
            send.transaction = transaction
        self._note_answer(send, answer)
        return answer

    def _note_record(
        self, place: Place, writer: ProducerIdAndEpoch, sequence: int, transaction: Transaction | None
    ) -> tuple[Send, bytes]:
        value = self._zombie.next_value()
        send = self._history.send(self._zombie.teller, place, value, transaction)
        is_transactional = transaction is not None
        return send, one_record(value, writer, sequence, now_ms(), is_transactional=is_transactional)

    def _note_answer(self, send: Send, answer: Answered) -> None:
        if not answer.code:
            self._history.acknowledged(send, answer.offset)
        elif answer.attempts == 1:
            self._history.failed(send)
        elif send.transaction is not None:
            # If the response of an attempt was lost, the record may have been accepted into the transaction, which need
            # not be committed.
            send.transaction = self._history.transaction(self._zombie.teller)

    async def _produce(self, place: Place, batch: bytes) -> Answered:
        transactional_id = self._id if self._transaction is not None or self._is_transactional(batch) else None
        version = V2_PRODUCE if self._is_v2 else V1_PRODUCE
        return await self._decided(partial(self._wire.produce, place, batch, transactional_id, version), BUSY)

    @staticmethod
    def _is_transactional(batch: bytes) -> bool:
        return bool(batch[22] & 0x10)

    async def _decided(self, ask: Callable[[], Awaitable[T]], passing: frozenset[ErrorCode] = MOVED) -> T:
        return await self._wire.until_decided(ask, code, passing)

    def _place(self) -> Place:
        return Place(HAUNTED, self._rng.randrange(PARTITIONS))

    def _must_be_refused(self, what: str, answer: object) -> None:
        if not code(answer):
            self._complain(f"{what} was accepted")

    def _complain(self, what: str) -> None:
        self._zombie.notes.complain(self._world, self._zombie.name, what)
