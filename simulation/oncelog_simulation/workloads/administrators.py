"""Administrators at work: they move partitions, elect leaders, change settings, and delete and re-create topics."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from oncelog import Admin, Consumer, KafkaError, NewTopic, Producer, TopicPartition
from oncelog.admin import AlterConfig, ConfigResource
from oncelog.errors import InvalidTopic, OffsetOutOfRange, StaleMetadata, TopicAlreadyExists
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import parse_topic
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.workload import (
    COMMON,
    ClientWorkload,
    make_topic,
    pause,
    producer_options,
)
from oncelog_simulation.workloads.writers import SMALL_SEGMENTS
from oncelog_testing.history.events import Place

if TYPE_CHECKING:
    from oncelog_simulation.process import Process
    from oncelog_simulation.world import World

AGAIN: Final = "again"
"""The topic that is deleted and re-created."""
TRIMMED: Final = "trimmed"
"""The topic whose oldest records are deleted."""
DELETE_TRIES: Final = 15
"""Number of attempts to delete records, a second apart, if the fault SESSION_ENDS may have struck. This fault ends a
broker's session without its notice, so a former leader may answer DeleteRecords with OFFSET_OUT_OF_RANGE although the
records below the offset were acknowledged.
"""
SESSION_ENDS: Final = "session ends"
"""The name of the fault that ends a session."""
CHANGES: Final = (
    ("segment.bytes", ("2048", "4096", "16384")),
    ("flush.messages", ("1", "9223372036854775807")),
    ("min.insync.replicas", ("1", "2")),
    ("max.message.bytes", ("1048588", "500000")),
)
"""Settings that a topic may get at any time without losing a record."""


class Mover(ClientWorkload):
    """Moves partitions to other brokers, cancels moves, elects preferred leaders, and changes settings."""

    async def live(self, world: World) -> None:
        rng = self.random(world)
        async with Admin(world.bootstrap_servers, **COMMON) as admin:
            goes_on = self.counts_down(world)
            while goes_on:
                step = rng.choice((self._move, self._move, self._cancel, self._elect, self._configure))
                try:
                    await step(world, admin, rng)
                except KafkaError as error:
                    world.note(self.name, "was refused", step=step.__name__.strip("_"), error=error.code.name)
                    await asyncio.sleep(0.2)
                else:
                    self.notes.step(self.name)
                await pause(world, rng.expovariate(0.7))
            await self._until_nothing_moves(admin)

    async def _move(self, world: World, admin: Admin, rng: Random) -> None:
        place = rng.choice(self.notes.places())
        brokers = [machine.number for machine in world.brokers.values()]
        target = rng.sample(brokers, min(len(brokers), rng.choice((2, 3, 3))))
        world.note(self.name, "moves a partition", partition=str(place), to=target)
        await admin.alter_partition_reassignments({TopicPartition(*place): target})

    async def _cancel(self, world: World, admin: Admin, rng: Random) -> None:
        under_way = sorted(await admin.list_partition_reassignments())
        if under_way:
            await admin.alter_partition_reassignments({rng.choice(under_way): None})

    async def _elect(self, world: World, admin: Admin, rng: Random) -> None:
        await admin.elect_leaders()

    async def _configure(self, world: World, admin: Admin, rng: Random) -> None:
        key, values = rng.choice(CHANGES)
        topic, value = rng.choice(sorted(self.notes.topics)), rng.choice(values)
        world.note(self.name, "changes a setting", topic=topic, key=key, value=value)
        await admin.incremental_alter_configs({ConfigResource.topic(topic): [AlterConfig(key, value)]})

    async def _until_nothing_moves(self, admin: Admin) -> None:
        while True:
            try:
                if not await admin.list_partition_reassignments():
                    return
            except KafkaError:
                pass
            await asyncio.sleep(0.5)


class TopicMaker(ClientWorkload):
    """Repeatedly deletes a topic, re-creates it under the same name, and writes to it. Records of a deleted topic must
    not be readable in the new topic.

    A broker may learn late that a topic was deleted and re-created. Until then it serves the deleted topic under the
    same name, as in Kafka, and clients that name topics instead of topic ids do not notice. Such reads are not judged.
    """

    def __init__(self, notes: Notes, name: str) -> None:
        super().__init__(notes, name)
        self._generation = 0
        self._topic = f"{AGAIN}-{name}"

    async def live(self, world: World) -> None:
        rng = self.random(world)
        async with Admin(world.bootstrap_servers, **COMMON) as admin:
            goes_on = self.counts_down(world)
            while goes_on:
                await self._make_again(world, admin)
                await self._check(world, rng)
                await pause(world, rng.expovariate(1))

    async def _make_again(self, world: World, admin: Admin) -> None:
        """Delete the topic and create it again, and repeat each request until it has succeeded. A request may find that
        an earlier one, whose response was lost, has already done the work.
        """
        while True:
            try:
                await admin.delete_topics([self._topic])
            except StaleMetadata:
                break  # already deleted by an earlier request
            except KafkaError:
                await asyncio.sleep(0.2)
            else:
                break
        self._generation += 1
        world.note(self.name, "makes a topic again", topic=self._topic, generation=self._generation)
        while True:
            try:
                await admin.create_topics([NewTopic(self._topic, 1)])
            except TopicAlreadyExists:
                return  # the topic was created by this client's own request, whose response was lost
            except (InvalidTopic, KafkaError):
                await asyncio.sleep(0.2)
            else:
                return

    async def _check(self, world: World, rng: Random) -> None:
        """Write to the new topic and read it. Complain about records of a deleted topic, unless a broker may have
        served the deleted topic itself.
        """
        late, processes = self._late_brokers(world), _processes(world)
        found = await self._write_and_read(world, rng)
        if found is None:
            return
        self.notes.step(self.name)
        strange = [value for value in found if not value.startswith(b"%d/" % self._generation)]
        if not strange:
            return
        if late or _processes(world) != processes:  # a broker that starts may read an older state of the store
            world.note(self.name, "may have read the topic before", topic=self._topic, late=late)
            return
        self.notes.complain(world, self.name, f"{self._topic}, made again, holds {strange[:3]} of the topic before")

    def _late_brokers(self, world: World) -> list[str]:
        """Return the names of the brokers that may serve a deleted topic under the name of the new topic: those whose
        cluster image has another topic id than the store, and those that are starting, whose image is unknown.
        """
        path = paths.topic(self._topic)
        node = world.store.tree.node(path)
        topic_id = None if node is None else parse_topic(node.data, path).topic_id
        late = []
        for machine in world.brokers.values():
            if machine.broker is None:
                if machine.is_running:
                    late.append(machine.name)
                continue
            topic = machine.broker.parts.membership.metadata.image.topic(self._topic)
            if topic is not None and topic.topic_id != topic_id:
                late.append(machine.name)
        return late

    async def _write_and_read(self, world: World, rng: Random) -> list[bytes] | None:
        """Return all records of the topic; None if they could not be read."""
        partition = TopicPartition(self._topic, 0)
        try:
            async with Producer(world.bootstrap_servers, **producer_options(delivery_timeout_ms=10_000)) as producer:
                for number in range(rng.choice((1, 3))):
                    value = b"%d/%d" % (self._generation, number)
                    await producer.send_and_wait(self._topic, value, partition=0)
            found: list[bytes] = []
            async with Consumer(
                world.bootstrap_servers, auto_offset_reset="earliest", allow_auto_create_topics=False, **COMMON
            ) as consumer:
                consumer.assign([partition])
                end = (await consumer.end_offsets([partition]))[partition]
                while await consumer.position(partition) < end:
                    polled = await consumer.poll(500)
                    for records in polled.values():
                        found += [bytes(record.value or b"") for record in records]
                    if not polled:  # a power cut of all replicas may have destroyed the records meanwhile
                        end = min(end, (await consumer.end_offsets([partition]))[partition])
            return found
        except KafkaError as error:
            world.note(self.name, "could not write or read", topic=self._topic, error=error.code.name)
            return None


def _processes(world: World) -> list[Process | None]:
    """Return the running or last process of each broker."""
    return [machine.process for machine in world.brokers.values()]


class Trimmer(ClientWorkload):
    """Writes to a topic and deletes its oldest records: deleted records must not reappear, and all other records must
    remain.
    """

    def __init__(self, notes: Notes, name: str) -> None:
        super().__init__(notes, name)
        self._deleted = 0
        """The largest offset of an acknowledged deletion: no record below it may be readable any more."""
        self._number = 0

    async def prepare(self, world: World) -> None:
        await make_topic(world, self.notes, TRIMMED, 1, SMALL_SEGMENTS)
        self.notes.trimmed[Place(TRIMMED)] = 0

    async def live(self, world: World) -> None:
        rng = self.random(world)
        partition = TopicPartition(TRIMMED, 0)
        async with (
            Admin(world.bootstrap_servers, **COMMON) as admin,
            Producer(world.bootstrap_servers, **producer_options()) as producer,
        ):
            goes_on = self.counts_down(world)
            while goes_on:
                end = 0
                for _ in range(rng.choice((1, 4))):
                    self._number += 1
                    place, teller = Place(TRIMMED), f"{self.name}/{self.lives}"
                    send = self.notes.history.send(teller, place, f"{teller}/{self._number}".encode())
                    told = await producer.send_and_wait(TRIMMED, send.value, partition=0)
                    self.notes.history.acknowledged(send, told.offset)
                    end = told.offset + 1
                if rng.random() < 0.4:
                    await self._delete(world, admin, partition, rng.randint(max(0, end - 10), end))
                await self._look(world, admin, partition)
                self.notes.step(self.name)
                await pause(world, rng.expovariate(1))

    async def _delete(self, world: World, admin: Admin, partition: TopicPartition, offset: int) -> None:
        place = Place(TRIMMED)
        self.notes.trimmed[place] = max(self.notes.trimmed[place], offset)
        world.note(self.name, "deletes records", below=offset)
        for _ in range(DELETE_TRIES):
            try:
                await admin.delete_records({partition: offset})
            except OffsetOutOfRange:
                if not any(strike.fault == SESSION_ENDS for strike in world.plan.strikes):
                    break
                # A fault may have ended the session of a former leader, which does not know that yet and has sent this
                # response.
                await asyncio.sleep(1.0)
            except KafkaError as error:
                world.note(self.name, "could not delete", error=error.code.name)
                return
            else:
                self._deleted = max(self._deleted, offset)
                return
        self.notes.complain(world, self.name, f"records below {offset} were acknowledged, and are out of range")

    async def _look(self, world: World, admin: Admin, partition: TopicPartition) -> None:
        from oncelog.admin import EARLIEST_TIMESTAMP

        deleted = self._deleted
        try:
            start = (await admin.list_offsets({partition: EARLIEST_TIMESTAMP}))[partition].offset
        except KafkaError:
            return
        if start < deleted:
            what = f"records below {deleted} were deleted, and the log begins at {start}"
            self.notes.complain(world, self.name, what)
