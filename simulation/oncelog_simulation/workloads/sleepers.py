"""Clients that are silent for hours or days, and come back: what has expired meanwhile must be gone, and what has not
expired must be there.

Each client plays one case after another: it leaves something behind, sleeps for less or for more than the limit, and
looks. Between `limit - SLACK_SECONDS` and `limit + SLACK_SECONDS` either answer is right, because clocks of machines
differ, and brokers look for expired state only from time to time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from oncelog import Admin, Consumer, Producer, RebalanceListener, TopicPartition
from oncelog.admin import EARLIEST_TIMESTAMP
from oncelog.clock import now_ms
from oncelog.config import GroupProtocol
from oncelog.errors import KafkaError
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_simulation.workloads.group_wire import NOBODY, GroupWire
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.wire import BUSY, V1_END, V1_PRODUCE, Answered, Wire, code, one_record
from oncelog_simulation.workloads.workload import (
    COMMON,
    ClientWorkload,
    long_poll_options,
    make_topic,
    pause,
    producer_options,
)
from oncelog_testing.history.events import End, Outcome, Place

if TYPE_CHECKING:
    from oncelog_simulation.world import World

BED: Final = "bed"
"""The topic of all sleepers but one; its records never expire."""
AGING: Final = "aging"
"""The topic whose records expire by their age."""
SLACK_SECONDS: Final = 7200.0
SHORT_SLEEP: Final = (0.1, 0.9)
"""Shortest and longest sleep below a limit, as fractions of the limit without slack."""
LONG_SLEEP: Final = (1.1, 1.5)
"""Shortest and longest sleep above a limit, as fractions of the limit with slack."""
DAY_SECONDS: Final = 86_400.0
POLL_SECONDS: Final = 1200.0
"""Virtual seconds between two polls of a group member that has nothing to do."""
POLL_MS: Final = 500
CLASSIC: Final[Mapping[str, Any]] = {"session_timeout_ms": 1_800_000, "heartbeat_interval_ms": 600_000}
PROTOCOLS: Final[tuple[GroupProtocol, ...]] = ("classic", "consumer")
TIMEOUT_MS: Final = 600_000
"""Timeout of a transaction; this is longer than all requests of a transaction may take."""
AGING_SECONDS: Final = 6 * 3600.0
AGING_CONFIGS: Final = {
    "retention.ms": str(round(AGING_SECONDS * 1000)),
    "segment.ms": str(round(AGING_SECONDS * 1000 / 4)),
    "segment.bytes": "4096",
    "segment.index.bytes": "1024",
}


class Sleeper(ClientWorkload):
    """Plays one case after another. `setting` is the name of the limit, whose unit is `unit_seconds`."""

    setting: str
    unit_seconds = 0.001
    default_seconds: float

    def __init__(self, notes: Notes, name: str) -> None:
        super().__init__(notes, name)
        self._cases = 0
        self._values = 0

    async def prepare(self, world: World) -> None:
        await make_topic(world, self.notes, BED, 1)

    async def live(self, world: World) -> None:
        rng = self.random(world)
        async with Wire(world.bootstrap_servers) as wire:
            await wire.follow([BED])
            goes_on = self.counts_down(world)
            while goes_on:
                self._cases += 1
                try:
                    await self.play(world, wire, rng)
                except KafkaError as error:
                    world.note(self.name, "a case was broken off", error=error.code.name)
                else:
                    self.notes.step(self.name)
                await pause(world, rng.expovariate(1))

    @abstractmethod
    async def play(self, world: World, wire: Wire, rng: Random) -> None:
        """Play one case. Raises KafkaError if brokers do not answer for a long time."""

    def limit_seconds(self, world: World) -> float:
        """Return the present limit of the brokers."""
        value = world.plan.settings.get(self.setting)
        return self.default_seconds if value is None else int(value) * self.unit_seconds

    async def sleep(self, world: World, rng: Random) -> float:
        """Sleep for less or for more than the limit, but not beyond the end of the faults; returns the seconds."""
        limit, began = self.limit_seconds(world), world.now
        if rng.random() < 0.5:
            seconds = rng.uniform(*SHORT_SLEEP) * (limit - SLACK_SECONDS)
        else:
            seconds = rng.uniform(*LONG_SLEEP) * (limit + SLACK_SECONDS)
        await pause(world, seconds / world.plan.pace)
        return world.now - began

    def must_be_there(self, world: World, slept: float) -> bool:
        return slept < self.limit_seconds(world) - SLACK_SECONDS

    def must_be_gone(self, world: World, slept: float) -> bool:
        return slept > self.limit_seconds(world) + SLACK_SECONDS

    def complain(self, world: World, slept: float, what: str) -> None:
        limit = self.limit_seconds(world)
        self.notes.complain(world, self.name, f"after {slept / 3600:.1f} hours, of {limit / 3600:.1f}: {what}")

    async def produce(self, wire: Wire, writer: ProducerIdAndEpoch, sequence: int, *, old_offset: int = -1) -> Answered:
        """Write a new record with this sequence, without a transaction. If the broker answers that this is the record
        at `old_offset`, the new record is not written.
        """
        self._values += 1
        place, teller = Place(BED), f"{self.name}/{self.lives}.{self._cases}"
        value = f"{self.name}/{self._values}".encode()
        send = self.notes.history.send(teller, place, value)
        batch = one_record(value, writer, sequence, now_ms(), is_transactional=False)
        told = await wire.until_decided(
            partial(wire.produce, place, batch, None, V1_PRODUCE), lambda answered: answered.code
        )
        if told.code is ErrorCode.NONE and told.offset != old_offset:
            self.notes.history.acknowledged(send, told.offset)
        elif told.attempts == 1 or told.code is ErrorCode.NONE:
            self.notes.history.failed(send)
        return told


class SleepingProducer(Sleeper):
    """An idempotent producer that comes back with its old producer id: with a sequence that it has used before, the
    next one, or one after a gap. A broker that has forgotten the producer accepts any sequence, as in Kafka.
    """

    setting = "producer.id.expiration.ms"
    default_seconds = DAY_SECONDS

    async def play(self, world: World, wire: Wire, rng: Random) -> None:
        told, writer = await wire.until_decided(wire.new_producer_id, code)
        if told is not ErrorCode.NONE:
            self.complain(world, 0.0, f"a producer gets no id: {told.name}")
            return
        for sequence in (0, 1):
            last = await self.produce(wire, writer, sequence)
            if last.code is not ErrorCode.NONE:
                self.complain(world, 0.0, f"sequence {sequence} of a new producer is refused: {last.code.name}")
                return
        slept = await self.sleep(world, rng)
        sequence = rng.choice((1, 2, 5))
        answered = await self.produce(wire, writer, sequence, old_offset=last.offset)
        is_known = answered.code is not ErrorCode.NONE or answered.offset == last.offset
        if answered.code not in (ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            self.complain(world, slept, f"sequence {sequence} is refused with {answered.code.name}")
        elif sequence == 2 and is_known:
            self.complain(world, slept, f"the next sequence is answered with {answered}")
        elif sequence != 2 and not is_known and self.must_be_there(world, slept):
            self.complain(world, slept, f"sequence {sequence} after 1 is accepted, so the producer is forgotten")


class SleepingTransactions(Sleeper):
    """A transactional producer that ends a transaction, and comes back: as a new producer, or with its old epoch."""

    setting = "transactional.id.expiration.ms"
    default_seconds = 7 * DAY_SECONDS

    async def play(self, world: World, wire: Wire, rng: Random) -> None:
        own = f"{self.name}-{rng.randrange(2)}"
        told, writer = await wire.until_decided(partial(wire.init, own, TIMEOUT_MS), code, BUSY)
        if told is not ErrorCode.NONE:
            self.complain(world, 0.0, f"{own} gets no producer id: {told.name}")
            return
        began = await self._transact(world, wire, own, writer, 0)
        if began is not ErrorCode.NONE:
            self.complain(world, 0.0, f"the first transaction of {own} is refused: {began.name}")
            return
        slept = await self.sleep(world, rng)
        if rng.random() < 0.5:
            told, found = await wire.until_decided(partial(wire.init, own, TIMEOUT_MS), code, BUSY)
            if told is not ErrorCode.NONE:
                self.complain(world, slept, f"{own} gets no producer id: {told.name}")
            elif found.producer_id != writer.producer_id and self.must_be_there(world, slept):
                self.complain(world, slept, f"{own} is forgotten: it was {writer}, and is {found}")
            elif found.producer_id == writer.producer_id and self.must_be_gone(world, slept):
                self.complain(world, slept, f"{own} is remembered: it was {writer}, and is {found}")
            return
        told = await self._transact(world, wire, own, writer, 1)
        if told is not ErrorCode.NONE and self.must_be_there(world, slept):
            self.complain(world, slept, f"the next transaction of {own} is refused: {told.name}")
        elif told is not ErrorCode.INVALID_PRODUCER_ID_MAPPING and self.must_be_gone(world, slept):
            self.complain(world, slept, f"the next transaction of {own} is answered with {told.name}")

    async def _transact(
        self, world: World, wire: Wire, own: str, writer: ProducerIdAndEpoch, sequence: int
    ) -> ErrorCode:
        """Commit a transaction of one record; returns the answer to the first request that a broker refused."""
        history, place = self.notes.history, Place(BED)
        told: ErrorCode = await wire.until_decided(partial(wire.add, own, writer, place), code, BUSY)
        if told is not ErrorCode.NONE:
            return told
        self._values += 1
        transaction = history.transaction(own)
        value = f"{self.name}/{self._values}".encode()
        send = history.send(f"{self.name}/{self.lives}.{self._cases}", place, value, transaction)
        batch = one_record(value, writer, sequence, now_ms(), is_transactional=True)
        answered = await wire.until_decided(
            partial(wire.produce, place, batch, own, V1_PRODUCE), lambda each: each.code
        )
        if answered.code is not ErrorCode.NONE:
            return answered.code
        history.acknowledged(send, answered.offset)
        told, _ = await wire.until_decided(partial(wire.end, own, writer, commits=True, version=V1_END), code, BUSY)
        if told is ErrorCode.NONE:
            history.ended(transaction, End.COMMITTED)
        return told


class SleepingGroup(Sleeper):
    """A group that commits an offset, and has no members for a long time: a group that never had members, or whose last
    member has left.
    """

    setting = "offsets.retention.minutes"
    unit_seconds = 60.0
    default_seconds = 7 * DAY_SECONDS

    async def play(self, world: World, wire: Wire, rng: Random) -> None:
        group, place, offset = f"{self.name}-{self.lives}-{self._cases}", Place(BED), rng.randrange(1000)
        asking, member = GroupWire(wire, group), NOBODY
        if rng.random() < 0.5:
            _, member = await wire.until_decided(partial(asking.join, "", None, 30_000, 30_000), code)
            told, member = await wire.until_decided(partial(asking.join, member.member_id, None, 30_000, 30_000), code)
            if told is not ErrorCode.NONE or await asking.sync(member) is not ErrorCode.NONE:
                return  # the session ended while a fault lasted
        noted = self.notes.history.commit(group, place, offset)
        told = await wire.until_decided(partial(asking.commit, member, {place: offset}), code)
        self.notes.history.commit_answered(noted, Outcome.UNKNOWN if told else Outcome.ACKNOWLEDGED)
        if told is not ErrorCode.NONE:
            return
        if member is not NOBODY:
            await wire.until_decided(partial(asking.leave, member), code)
        slept = await self.sleep(world, rng)
        async with Admin(world.bootstrap_servers, **COMMON) as admin:
            found = (await admin.groups.offsets(group)).get(TopicPartition(*place))
        if (found is None or found.offset != offset) and self.must_be_there(world, slept):
            self.complain(world, slept, f"{group} has committed {offset}, and {found} is there")
        elif found is not None and self.must_be_gone(world, slept):
            self.complain(world, slept, f"{group} has committed {offset}, which is still there")


class StayingGroup(Sleeper):
    """A group that commits an offset once, and whose only member stays for longer than the retention of offsets: the
    offset must remain, because the group subscribes to the topic.

    A member whose session ended while a fault lasted is not judged: in a group of the consumer protocol, an older
    offset expires as soon as the group has no member, as in Kafka.
    """

    setting = SleepingGroup.setting
    unit_seconds = SleepingGroup.unit_seconds
    default_seconds = SleepingGroup.default_seconds

    async def play(self, world: World, wire: Wire, rng: Random) -> None:
        group, partition = f"{self.name}-{self.lives}-{self._cases}", TopicPartition(BED, 0)
        offset, protocol = rng.randrange(1000), rng.choice(PROTOCOLS)
        async with Consumer(
            world.bootstrap_servers,
            **(CLASSIC if protocol == "classic" else {}),
            **{**COMMON, **long_poll_options(world, POLL_MS)},
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="latest",
            enable_auto_commit=False,
            allow_auto_create_topics=False,
            max_poll_interval_ms=round(4 * POLL_SECONDS * 1000),
        ) as consumer:
            membership = _Assignments()
            consumer.subscribe([BED], listener=membership)
            while partition not in consumer.assignment():
                await consumer.poll(POLL_MS)
            await self._commit(consumer, group, partition, offset)
            began = world.now
            until = began + rng.uniform(*LONG_SLEEP) * (self.limit_seconds(world) + SLACK_SECONDS)
            while world.now < until and not world.calm.is_set():
                await pause(world, min(POLL_SECONDS, until - world.now) / world.plan.pace)
                await consumer.poll(0)
            found = (await consumer.committed([partition])).get(partition)
            if found is None or found.offset != offset:
                # This commit is refused if the coordinator has removed the member, and this poll calls the listener if
                # the member has joined again.
                await self._commit(consumer, group, partition, offset)
                await consumer.poll(0)
                if membership.count == 1:
                    what = f"{group} has committed {offset}, and {found} is there, although it has a member"
                    self.complain(world, world.now - began, what)

    async def _commit(self, consumer: Consumer, group: str, partition: TopicPartition, offset: int) -> None:
        noted = self.notes.history.commit(group, Place(*partition), offset)
        try:
            await consumer.commit({partition: offset})
        except KafkaError:
            self.notes.history.commit_answered(noted, Outcome.UNKNOWN)
            raise
        self.notes.history.commit_answered(noted, Outcome.ACKNOWLEDGED)


class _Assignments(RebalanceListener):
    """Counts how often the member got partitions: more than once only if it has lost its membership."""

    count = 0

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.count += bool(partitions)


class AgingWriter(ClientWorkload):
    """Writes to a topic whose records expire by their age: older segments must be deleted, and younger records must
    remain. A segment has records of `segment.ms` at most, and is deleted when its youngest record has expired.
    """

    def __init__(self, notes: Notes, name: str) -> None:
        super().__init__(notes, name)
        self._written: list[tuple[float, int]] = []
        """Virtual seconds and offset of each acknowledged record, in order."""
        self._number = 0

    async def prepare(self, world: World) -> None:
        await make_topic(world, self.notes, AGING, 1, AGING_CONFIGS)
        self.notes.trimmed[Place(AGING)] = 0
        self.notes.passing.add(Place(AGING))

    async def live(self, world: World) -> None:
        rng = self.random(world)
        async with (
            Admin(world.bootstrap_servers, **COMMON) as admin,
            Producer(world.bootstrap_servers, **producer_options()) as producer,
        ):
            goes_on = self.counts_down(world)
            while goes_on:
                for _ in range(rng.choice((0, 1, 8))):
                    self._number += 1
                    value = f"{self.name}/{self.lives}/{self._number}".encode()
                    send = self.notes.history.send(f"{self.name}/{self.lives}", Place(AGING), value)
                    began = world.now
                    told = await producer.send_and_wait(AGING, value, partition=0)
                    self.notes.history.acknowledged(send, told.offset)
                    self._written.append((began, told.offset))
                await self._look(world, admin)
                self.notes.step(self.name)
                await pause(world, rng.choice((0.3, 1.0, 8.0)) * rng.random())

    async def _look(self, world: World, admin: Admin) -> None:
        partition = TopicPartition(AGING, 0)
        began = world.now
        try:
            start = (await admin.list_offsets({partition: EARLIEST_TIMESTAMP}))[partition].offset
        except KafkaError:
            return
        for at, offset in self._written:
            if offset < start and world.now - at < AGING_SECONDS - SLACK_SECONDS:
                what = f"the record at {offset} was written {(world.now - at) / 3600:.1f} hours ago and is deleted"
                self.notes.complain(world, self.name, what)
            if offset >= start and began - at > AGING_SECONDS * 1.25 + SLACK_SECONDS:
                what = f"the record at {offset} was written {(began - at) / 3600:.1f} hours ago and is still there"
                self.notes.complain(world, self.name, what)
        self._written = [each for each in self._written if each[1] >= start]
