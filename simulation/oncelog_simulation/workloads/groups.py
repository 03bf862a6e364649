"""Consumer groups whose members join and leave, and commit the positions that they have read; and watchers of committed
offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import oncelog
from oncelog import Admin, KafkaError
from oncelog.config import GroupProtocol
from oncelog_simulation.workloads.kept_groups import is_long, keep_group
from oncelog_simulation.workloads.notes import PATIENCE_MS, Notes, Owner
from oncelog_simulation.workloads.workload import COMMON, ClientWorkload, make_topic, pause
from oncelog_simulation.workloads.writers import LINES, PARTITIONS, SMALL_SEGMENTS
from oncelog_testing.history.events import Outcome, Place, Reading

if TYPE_CHECKING:
    from oncelog_simulation.world import World

GROUP: Final = "readers"
NEWER_GROUP: Final = "newer-readers"
"""Name of a group of the consumer protocol (KIP-848), in which the coordinator assigns the partitions."""
MIXED_GROUP: Final = "mixed-readers"
"""Name of a group whose members use different protocols."""
GROUPS_BY_PROTOCOL: Final[Mapping[GroupProtocol | None, str]] = {
    "classic": GROUP,
    "consumer": NEWER_GROUP,
    None: MIXED_GROUP,
}
POLL_MS: Final = 300
PAUSE_SECONDS: Final = 0.2
"""Virtual seconds between two polls, in which members process their records."""
PROTOCOLS: Final[tuple[GroupProtocol, ...]] = ("classic", "consumer")
SESSION_MS: Final = 6_000
CLASSIC: Final[Mapping[str, Any]] = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 1_500}
STAY_SECONDS: Final = (2.0, 10.0)
"""Minimum and maximum virtual seconds after which a member leaves the group, or dies, before it joins again."""
LOOK_SECONDS: Final = 0.8
NO_OFFSET: Final = -1


class GroupMember(ClientWorkload):
    """A group member that reads records, and commits their offsets explicitly. The member leaves the group repeatedly,
    with or without a LeaveGroup request, and joins again. If `protocol` is None, the member draws a protocol each time
    it joins: the group then has members of both protocols, as during a user's upgrade.
    """

    def __init__(self, notes: Notes, name: str, protocol: GroupProtocol | None = "classic") -> None:
        super().__init__(notes, name)
        self._group = GROUPS_BY_PROTOCOL[protocol]
        self._topic = LINES
        self._protocol = protocol
        self._stays = 0
        self.readings: dict[Place, Reading] = {}
        """For each partition, the records that the member has read since the partition was assigned to it."""

    async def prepare(self, world: World) -> None:
        await make_topic(world, self.notes, self._topic, PARTITIONS, SMALL_SEGMENTS)
        if self._protocol is not None and is_long(world):  # the epochs of the mixed group are not compared
            await world.client("operator").run(lambda: self._keep_group(world))

    async def _keep_group(self, world: World) -> None:
        async with Admin(world.bootstrap_servers, **COMMON) as admin:
            await keep_group(admin, self.notes, self._group, Place(self._topic))

    async def live(self, world: World) -> None:
        rng = self.random(world)
        while True:
            is_calm = world.calm.is_set()
            instance = f"static-{self.name}" if rng.random() < 0.3 else None
            protocol: GroupProtocol = rng.choice(PROTOCOLS) if self._protocol is None else self._protocol
            stay = asyncio.create_task(self._stay(world, instance, protocol))
            if is_calm:
                await stay
                return
            calm = asyncio.create_task(world.calm.wait())
            await asyncio.wait([stay, calm], timeout=rng.uniform(*STAY_SECONDS), return_when="FIRST_COMPLETED")
            calm.cancel()
            stay.cancel()
            await asyncio.wait([stay])
            if not stay.cancelled() and (error := stay.exception()) is not None:
                raise error

    async def _stay(self, world: World, instance: str | None, protocol: GroupProtocol) -> None:
        self._stays += 1
        self.readings.clear()
        async with oncelog.Consumer(
            world.bootstrap_servers,
            **COMMON,
            group_id=self._group,
            group_instance_id=instance,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
            **(CLASSIC if protocol == "classic" else {}),
            default_api_timeout_ms=PATIENCE_MS,
            allow_auto_create_topics=False,
        ) as consumer:
            teller = f"{self.name}/{self.lives}.{self._stays}"
            consumer.subscribe([self._topic], listener=_Owns(self, consumer, teller))
            unsure: dict[Place, int] = {}
            while True:
                is_calm = world.calm.is_set()
                await pause(world, PAUSE_SECONDS)
                found = await consumer.poll(POLL_MS, 20)
                offsets = dict(unsure)
                for (topic, index), records in found.items():
                    place = Place(topic, index)
                    self._note(place, [(record.offset, bytes(record.value or b"")) for record in records])
                    offsets[place] = records[-1].offset + 1
                if offsets:
                    unsure = await self._commit(world, consumer, offsets, teller)
                if is_calm and not unsure and await self._has_committed_all(consumer):
                    return

    async def _has_committed_all(self, consumer: oncelog.Consumer) -> bool:
        """Return whether this consumer is a member of its group, and the group's committed offset of each partition is
        at the end of the partition.
        """
        if consumer.group_metadata().generation_id < 0:
            return False
        partitions = [oncelog.TopicPartition(self._topic, index) for index in range(PARTITIONS)]
        try:
            committed, ends = await consumer.committed(partitions), await consumer.end_offsets(partitions)
        except KafkaError:
            return False
        return all(
            (known.offset if (known := committed.get(each)) is not None else 0) >= ends[each] for each in partitions
        )

    def owns(self, places: Collection[Place], epoch: int, teller: str) -> None:
        """Record that the member got partitions, unless another member has got them in a higher epoch since then,
        because this assignment may come from a late response. In a group whose members use both protocols, epochs are
        not compared: they restart when the group has become empty and the next member uses the other protocol.
        """
        self.readings.clear()
        if self._protocol is None:
            return
        for place in places:
            known = self.notes.owners.get((self._group, place))
            if known is None or known.epoch <= epoch:
                self.notes.owners[self._group, place] = Owner(teller, epoch)

    async def _commit(
        self, world: World, consumer: oncelog.Consumer, offsets: dict[Place, int], teller: str
    ) -> dict[Place, int]:
        """Commit the positions; returns the offsets to commit again: none, even after a failure. The coordinator must
        refuse a commit if another member got the partition, in a later epoch, before the commit was sent.
        """
        history, epoch = self.notes.history, consumer.group_metadata().generation_id
        owners = {place: self.notes.owners.get((self._group, place)) for place in offsets}
        commits = [history.commit(self._group, place, offset) for place, offset in offsets.items()]
        try:
            await consumer.commit({oncelog.TopicPartition(*place): offset for place, offset in offsets.items()})
        except KafkaError:
            for commit in commits:
                history.commit_answered(commit, Outcome.UNKNOWN)
            return {}  # not repeated: another member may have these partitions by now, and then reads the records again
        for commit in commits:
            history.commit_answered(commit)
            owner = owners[commit.place]
            if owner is not None and owner.name != teller and owner.epoch > epoch:
                what = f"committed {commit.offset} of {commit.place} in epoch {epoch}, but {owner} has the partition"
                self.notes.complain(world, teller, what)
        self.notes.step(self.name)
        return {}

    def _note(self, place: Place, records: list[tuple[int, bytes]]) -> None:
        reading = self.readings.get(place)
        if reading is None or (reading.records and records[0][0] <= reading.records[-1][0]):
            teller = f"{self.name}/{self.lives}.{self._stays}"
            reading = self.readings[place] = self.notes.history.reading(teller, place)
        reading.records += records


class _Owns(oncelog.RebalanceListener):
    """The rebalance listener of a member: records which partitions the member gets. When the member gets or loses
    partitions, the listener ends its notes about records read so far, because the member may then read from any offset.
    """

    def __init__(self, member: GroupMember, consumer: oncelog.Consumer, teller: str) -> None:
        self._member = member
        self._consumer = consumer
        self._teller = teller

    async def on_assigned(self, partitions: Collection[oncelog.TopicPartition]) -> None:
        epoch = self._consumer.group_metadata().generation_id
        self._member.owns([Place(*partition) for partition in partitions], epoch, self._teller)

    async def on_revoked(self, partitions: Collection[oncelog.TopicPartition]) -> None:
        self._member.readings.clear()


class OffsetsWatcher(ClientWorkload):
    """Fetches the committed offsets of groups repeatedly: they must never go back."""

    def __init__(self, notes: Notes, name: str, groups: Collection[str]) -> None:
        super().__init__(notes, name)
        self._groups = tuple(groups)

    async def live(self, world: World) -> None:
        rng = self.random(world)
        async with Admin(world.bootstrap_servers, **COMMON) as admin:
            goes_on = self.counts_down(world)
            while goes_on:
                for group in self._groups:
                    await self._look(admin, group)
                await pause(world, rng.expovariate(1 / LOOK_SECONDS))

    async def _look(self, admin: Admin, group: str) -> None:
        history = self.notes.history
        asked = history.now()
        try:
            offsets = await admin.groups.offsets(group, require_stable=True)
        except KafkaError:
            return
        for (topic, index), told in offsets.items():
            history.offset_read(group, Place(topic, index), told.offset, asked=asked)
        missing = {commit.place for commit in history.commits if commit.group == group}
        for place in sorted(missing - {Place(*where) for where in offsets}):
            history.offset_read(group, place, NO_OFFSET, asked=asked)
        self.notes.step(self.name)
