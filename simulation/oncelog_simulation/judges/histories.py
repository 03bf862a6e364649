"""Compares the responses that clients got with the final content. For this, the judge passes all notes of the
workloads, the content of all judged topics, and the logs of all replicas to `oncelog_testing.history`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from oncelog import Admin, KafkaError, TopicPartition
from oncelog.admin import EARLIEST_TIMESTAMP
from oncelog.admin.groups import CommittedOffset
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.errors import KafkaError as BrokerError
from oncelog_protocol.records.batch import CorruptBatch, batches
from oncelog_simulation.disk import unnoticed
from oncelog_simulation.judges.committed import READ_BYTES, Committed
from oncelog_simulation.judges.content import content
from oncelog_simulation.judges.running import running
from oncelog_simulation.judges.tables import table_of, table_violations
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.tables import TABLE
from oncelog_simulation.workloads.workload import COMMON
from oncelog_testing.history.checker import violations
from oncelog_testing.history.events import Outcome, Place, ReplicaLog, StoredBatch
from oncelog_testing.history.violation import Kind

if TYPE_CHECKING:
    from oncelog_broker.replication.partition import Partition
    from oncelog_simulation.world import World

SETTLE_SECONDS: Final = 90.0
"""Virtual seconds after the faults in which all replicas must be in sync and no transaction may stay open."""
LOOK_SECONDS: Final = 0.5
STILL_JUDGED: Final = frozenset({Kind.REPLICAS_DIFFER, Kind.TWO_LEADERS, Kind.INVENTED})
"""Violations that a power cut of all in-sync replicas does not excuse."""


class Histories:
    """Reads the final content of all topics and replicas, and checks it, after the faults are over and the workloads
    have ended.
    """

    name = "history"

    def __init__(self, notes: Notes, committed: Committed) -> None:
        self._notes = notes
        self._committed = committed
        self._told = 0

    def look_closely(self, world: World) -> Iterable[str]:
        """Yield the complaints of workloads; if a power cut has destroyed records, yield none, because the complaints
        may be justified.
        """
        new, self._told = self._notes.complaints[self._told :], len(self._notes.complaints)
        return () if self._committed.excused else new

    async def conclude(self, world: World) -> Iterable[str]:
        """Return all violations."""
        found = list(self.look_closely(world))
        limit = SETTLE_SECONDS * world.plan.leisure
        try:
            async with asyncio.timeout(limit):
                await _until_whole(world)
        except TimeoutError:
            if world.rotted:
                # Other replicas that lack the damaged records cannot fetch them, so the broker's disk cannot be
                # replaced.
                return found
            return [*found, f"{limit:g} s after the calm replicas are not in sync: {_not_whole(world)}"]
        try:
            await world.client("auditor").run(lambda: self._read(world))
        except TimeoutError:
            if self._committed.excused:
                # A coordinator that has lost its log cannot end its open transactions: their records hold the last
                # stable offset back, and the offsets that they commit stay pending.
                return found
            return [*found, f"{limit:g} s after the calm transactions hold readers back: {self._held(world)}"]
        except KafkaError as error:
            return [*found, f"all could not be read in the end: {error}"]
        self._note_replicas(world)
        self._forget_trimmed()
        table = [] if self._committed.excused else [*self._table_violations, *self._tables_of_replicas(world)]
        return [*found, *table, *self._judge()]

    # --- reading

    async def _read(self, world: World) -> None:
        async with asyncio.timeout(SETTLE_SECONDS * world.plan.leisure):
            topics = dict(self._notes.topics)
            for place, records in (await content(world, topics)).items():
                self._notes.history.finally_holds(place, [(offset, value) for offset, _, value in records])
            self._table_violations: list[str] = []
            if self._notes.tables:
                table = (await content(world, {TABLE: 1}))[Place(TABLE)]
                self._table_violations = table_violations(self._notes, table)
            if self._notes.passing:
                await self._note_starts(world)
            await self._note_committed_offsets(world)

    async def _note_starts(self, world: World) -> None:
        """Record the first offsets of the logs whose oldest records are deleted according to their settings."""
        earliest = {TopicPartition(*place): EARLIEST_TIMESTAMP for place in sorted(self._notes.passing)}
        async with Admin(world.bootstrap_servers, **COMMON) as admin:
            for partition, told in (await admin.list_offsets(earliest)).items():
                self._notes.trimmed[Place(*partition)] = told.offset

    async def _note_committed_offsets(self, world: World) -> None:
        async with Admin(world.bootstrap_servers, **COMMON) as admin:
            for group, sources in self._notes.groups.items():
                offsets = await _stable_offsets(admin, group)
                for place in sources:
                    told = offsets.get(TopicPartition(*place))
                    if told is not None:
                        self._notes.history.finally_processed(group, place, told.offset)

    def _note_replicas(self, world: World) -> None:
        places = set(self._notes.places())
        places.update(Place(topic, index) for topic, count in self._notes.careless.items() for index in range(count))
        for broker in running(world):
            for partition in broker.hosted():
                place = Place(partition.topic, partition.index)
                stored = _stored(partition) if place in places else ()
                if stored:  # a topic from which all records were deleted is not compared
                    log = ReplicaLog(broker.number, place, partition.high_watermark, stored)
                    self._notes.history.replica(log)

    def _tables_of_replicas(self, world: World) -> list[str]:
        """Return the violations in each replica of the compacted topic, because any replica may be the next leader."""
        return [
            f"broker {broker.number}: {what}"
            for broker in (running(world) if self._notes.tables else ())
            for partition in broker.hosted()
            if partition.topic == TABLE and not partition.log.is_offline
            for what in table_violations(self._notes, table_of(partition))
        ]

    def _forget_trimmed(self) -> None:
        """Drop the records that were requested to be deleted, because they may or may not exist."""
        history = self._notes.history
        for place, below in self._notes.trimmed.items():
            history.final[place] = [each for each in history.final.get(place, ()) if each[0] >= below]
            history.sends = [
                send
                for send in history.sends
                if send.place != place or send.outcome is not Outcome.ACKNOWLEDGED or send.offset >= below
            ]

    def _judge(self) -> list[str]:
        excused = {place.topic for place in self._committed.excused}
        found = violations(self._notes.history)
        if excused:  # an excused topic may be an internal one, whose loss destroys the state of transactions and groups
            found = [each for each in found if each.kind in STILL_JUDGED]
        wrong = [str(each) for each in found]
        return wrong if excused else [*wrong, *self._two_values()]

    def _two_values(self) -> list[str]:
        """Return a violation for each offset at which two readers got different records: the record at an offset never
        changes, not even for a read_uncommitted consumer.
        """
        seen = {place: dict(records) for place, records in self._notes.history.final.items()}
        wrong = []
        for reading in self._notes.history.readings:
            known = seen.setdefault(reading.place, {})
            for offset, value in reading.records:
                if known.setdefault(offset, value) != value:
                    told = f"{value!r} was read at {offset}, where others read {known[offset]!r}"
                    wrong.append(f"TWO VALUES: {reading.consumer} in {reading.place}: {told}")
        return wrong

    def _held(self, world: World) -> str:
        held = [
            f"{partition.log.name} at {partition.last_stable_offset} of {partition.high_watermark}"
            for broker in running(world)
            for partition in broker.hosted()
            if partition.leads and partition.last_stable_offset < partition.high_watermark
        ]
        return ", ".join(held) or "none that can be seen"


def _stored(partition: Partition) -> tuple[StoredBatch, ...]:
    """Return all batches of a log, each with a digest of all its bytes."""
    log, found = partition.log, list[StoredBatch]()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            with unnoticed():
                view = log.reader.read(offset, READ_BYTES, upper_bound=log.log_end_offset, min_one_batch=True)
            content = bytes(view)
            read = list(batches(content))
        except (BrokerError, CorruptBatch, OSError):
            break
        if not read:
            break
        for batch in read:
            digest = hashlib.sha256(content[batch.start : batch.start + batch.size]).digest()
            if batch.next_offset > offset:
                found.append(StoredBatch(batch.base_offset, batch.next_offset, digest))
        offset = read[-1].next_offset
    return tuple(found)


async def _stable_offsets(admin: Admin, group: str) -> dict[TopicPartition, CommittedOffset]:
    """Return the committed offsets of a group as soon as no transaction has a pending offset of the group. The caller
    limits the wait. Raises KafkaError.
    """
    while True:
        try:
            return await admin.groups.offsets(group, require_stable=True)
        except KafkaError as error:
            if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise
        await asyncio.sleep(LOOK_SECONDS)


async def _until_whole(world: World) -> None:
    while _not_whole(world):
        await asyncio.sleep(LOOK_SECONDS)


def _not_whole(world: World) -> str:
    """Return a description of the brokers that do not run or do not see all others, and of the replicas that are not in
    sync; empty if there are none.
    """
    brokers = running(world)
    numbers = {broker.number for broker in brokers}
    missing = [f"{machine.name} does not run" for machine in world.brokers.values() if machine.broker is None]
    missing += [f"{name} has a damaged disk" for name in sorted(world.rotted)]
    for broker in brokers:
        image = broker.image
        if not image.brokers.keys() >= numbers:
            missing.append(f"broker {broker.number} sees {sorted(image.brokers)}")
        for topic in image.topics.values():
            for index, state in topic.partitions.items():
                if state.leader < 0 or not set(state.isr) >= set(state.replicas) or state.adding_replicas:
                    told = f"leader {state.leader}, in sync {state.isr} of {state.replicas}"
                    missing.append(f"{topic.name}-{index} by broker {broker.number}: {told}")
    return ", ".join(missing[:5])
