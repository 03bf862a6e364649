"""Fills a cluster: topics, consumer groups and transactional producers, through requests of one client host.

Groups and producers send no requests afterwards: what is measured is what a cluster has to keep, load and hand over,
not the load of clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from oncelog import Admin, NewTopic
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_simulation.clock import WALL_START_MS
from oncelog_simulation.scale.world import ScaleWorld
from oncelog_simulation.workloads.group_wire import GroupWire, Membership
from oncelog_simulation.workloads.wire import BUSY, V2_END, V2_PRODUCE, Wire, code, one_record
from oncelog_simulation.workloads.workload import COMMON
from oncelog_testing.history.events import Place

AT_A_TIME: Final = 20
"""Number of groups or producers that are created at the same time."""
SESSION_MS: Final = 1_800_000
"""Session timeout of the members, which send no heartbeats: the longest that brokers allow by default."""
TRANSACTION_MS: Final = 900_000
"""Transaction timeout of the producers: the longest that brokers allow by default."""
TOPICS_IN_USE: Final = 10
"""Number of topics to which producers write."""
BOOTSTRAP_BROKERS: Final = 3
"""Number of brokers whose addresses the clients know."""
TOPICS_PER_REQUEST: Final = 10


class Unexpected(Exception):
    """Raised if a broker has responded with an error that is not temporary."""


class Filling:
    """What clients create in a cluster."""

    def __init__(self, world: ScaleWorld) -> None:
        self._world = world
        self._members: dict[str, Membership] = {}
        brokers = [machine.bootstrap_server for machine in world.brokers.values()]
        self._bootstrap = ",".join(brokers[:BOOTSTRAP_BROKERS])

    async def make_topics(self) -> None:
        """Create all topics, and wait until each leader serves."""
        await self._world.by_client(self._make_topics)
        await self._world.until_served()

    async def _make_topics(self) -> None:
        topics = [NewTopic(name, partitions) for name, partitions in self._world.size.topic_sizes().items()]
        async with Admin(self._bootstrap, **COMMON) as admin:
            for first in range(0, len(topics), TOPICS_PER_REQUEST):
                await admin.create_topics(topics[first : first + TOPICS_PER_REQUEST])

    async def make_groups(self) -> None:
        """Let a member join each group, and commit an offset."""
        groups = [f"group-{number}" for number in range(self._world.size.groups)]
        await self._world.by_client(lambda: self._for_all(groups, self._join))

    async def commit_again(self) -> None:
        """Let each member commit an offset with its membership, as the coordinators must know it after a fail-over."""
        await self._world.by_client(lambda: self._for_all(list(self._members), self._commit))

    async def make_producers(self) -> None:
        """Let each producer commit a transaction with one record."""
        names = [f"producer-{number}" for number in range(self._world.size.producers)]
        await self._world.by_client(lambda: self._for_all(names, self._commit_transaction))

    async def _for_all(self, names: list[str], work: Callable[[Wire, str], Coroutine[Any, Any, None]]) -> None:
        async with Wire(self._bootstrap) as wire:
            await wire.follow(list(self._world.size.topic_sizes())[:TOPICS_IN_USE])
            left = iter(names)

            async def one_after_another() -> None:
                for name in left:
                    await work(wire, name)

            await asyncio.gather(*(one_after_another() for _ in range(AT_A_TIME)))

    async def _join(self, wire: Wire, group: str) -> None:
        members = GroupWire(wire, group)

        async def join(member_id: str = "") -> tuple[ErrorCode, Membership]:
            return await members.join(member_id, None, SESSION_MS, SESSION_MS)

        answered, member = await _decided(wire, join)
        if answered is ErrorCode.MEMBER_ID_REQUIRED:
            answered, member = await _decided(wire, lambda: join(member.member_id))
        _check(answered, "JoinGroup")
        _check(await _decided(wire, lambda: members.sync(member)), "SyncGroup")
        self._members[group] = member
        await self._commit(wire, group)

    async def _commit(self, wire: Wire, group: str) -> None:
        members = GroupWire(wire, group)
        member = self._members[group]
        _check(await _decided(wire, lambda: members.commit(member, {Place("topic-0", 0): 1})), "OffsetCommit")

    async def _commit_transaction(self, wire: Wire, name: str) -> None:
        number = int(name.rpartition("-")[2])
        sizes = list(self._world.size.topic_sizes().items())[:TOPICS_IN_USE]
        topic, partitions = sizes[number % len(sizes)]
        place = Place(topic, number // len(sizes) % partitions)
        answered, producer = await _decided(wire, lambda: wire.init(name, TRANSACTION_MS))
        _check(answered, "InitProducerId")
        batch = one_record(name.encode(), producer, 0, WALL_START_MS, is_transactional=True)
        produced = await wire.until_decided(
            lambda: wire.produce(place, batch, name, V2_PRODUCE), lambda each: each.code, BUSY
        )
        _check(produced.code, "Produce")

        async def end() -> tuple[ErrorCode, ProducerIdAndEpoch]:
            return await wire.end(name, producer, commits=True, version=V2_END)

        _check((await _decided(wire, end))[0], "EndTxn")


async def _decided(wire: Wire, ask: Callable[[], Awaitable[Any]]) -> Any:
    return await wire.until_decided(ask, code, BUSY)


def _check(answered: ErrorCode, what: str) -> None:
    if answered is not ErrorCode.NONE:
        raise Unexpected(f"{what}: {answered.name}")
