"""A Fetch of a follower's session visits only the partitions with news, and has the same effects as if it visited all
partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.served import EPOCH, FOLLOWER, LEADER, Client, Served
from tests.support.storage import SMALL, make_batch

from oncelog_broker.replication.fetch_plan import FetchLimits, FetchPlan
from oncelog_broker.replication.follower_progress import FetchPosition
from oncelog_broker.replication.partition import Partition
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.server.kept.fetch_sessions import PARTITIONS_PER_STEP, FetchSession, Follower
from oncelog_protocol.api import ApiKey
from oncelog_protocol.records.batch import batches

OTHER = 3
REPLICAS = (LEADER, FOLLOWER, OTHER)
PARTITIONS = 5
FIRST_LEADER_EPOCH = 3
LAG_SECONDS = 30.0
ROUNDS = 100
DAY_MS = 86_400_000
TURNS = 10
"""After this many iterations of the event loop, a fetch that an append ends has got its response."""
LIMITS = FetchLimits(
    partition_bytes=1 << 20, response_bytes=1 << 20, min_bytes=1, max_wait_seconds=0.0, max_rest_seconds=1.0
)


class World:
    """A leader with some partitions, and a follower that fetches them in one session."""

    def __init__(self, directory: Path, *, rests: bool = True) -> None:
        """`rests`: whether partitions may become idle."""
        self.clock = ManualClock()
        self.served = Served(directory, partitions=PARTITIONS, clock=self.clock)
        self.plan = FetchPlan(LIMITS)
        self.epoch = FIRST_LEADER_EPOCH
        self.positions = [FetchPosition(0, -1, FIRST_LEADER_EPOCH, 0) for _ in range(PARTITIONS)]
        self.told = [(-1, -1)] * PARTITIONS
        """The high watermark and log start offset that the follower was told, by partition."""
        self.rests = rests
        self.requests = self.responses = 0
        self.partition_epoch = 0
        self.log: list[Any] = []
        for partition in self.partitions:
            partition.lead(FIRST_LEADER_EPOCH, REPLICAS, REPLICAS)
            self._ask_for(partition.index)

    @cached_property
    def client(self) -> Client:
        return Client(self.served)

    @property
    def partitions(self) -> list[Partition]:
        return self.served.partitions

    @property
    def session(self) -> FetchSession | None:
        return self.served.services.fetch_sessions._of_followers.get(FOLLOWER)

    @property
    def waits(self) -> bool:
        return self.requests > self.responses

    def _ask_for(self, index: int) -> None:
        self.plan.ask_for((bytes(16), index), self.positions[index])

    def send(self, wait_ms: int = 0) -> None:
        request = self.plan.next_request(FOLLOWER, EPOCH, self.clock.monotonic())
        assert request is not None
        self.client.send(replace(request, max_wait_ms=wait_ms), api=ApiKey.FETCH, version=17)
        self.requests += 1

    async def take(self) -> dict[int, Any]:
        """Take the next response, and apply it as a follower does. Returns its partitions, by index."""
        response = (await self.client.answered(self.requests))[self.responses][1]
        self.responses += 1
        assert response.error_code == 0
        if not self.rests and self.session is not None:
            self.session.close()  # a closed session makes no partition idle
        found = {}
        for asked in self.plan.on_response(response):
            index, answer, position = asked.key[1], asked.answer, asked.position
            found[index] = answer
            if answer.error_code or position != self.positions[index]:
                self._ask_for(index)
                continue
            self.told[index] = answer.high_watermark, answer.log_start_offset
            read = list(batches(bytes(answer.records)))
            if read:
                position = position._replace(
                    offset=read[-1].last_offset + 1, last_fetched_epoch=read[-1].partition_leader_epoch
                )
            self.positions[index] = position._replace(
                log_start_offset=max(position.log_start_offset, answer.log_start_offset)
            )
            self._ask_for(index)
        return found

    async def fetch(self) -> dict[int, Any]:
        self.send()
        return await self.take()

    # --- events

    def append(self, index: int) -> None:
        self.partitions[index].append(memoryview(make_batch()), required_acks=1)

    def other_fetches(self, index: int) -> None:
        """Broker 3 fetches everything, and may thereby advance the high watermark."""
        partition = self.partitions[index]
        partition.on_follower_fetch(OTHER, partition.log.log_end_offset, log_start_offset=0, now=self.clock.monotonic())

    def delete(self, index: int) -> None:
        partition = self.partitions[index]
        if partition.high_watermark > partition.log.log_start_offset:
            partition.delete_records_before(partition.log.log_start_offset + 1)

    def change_isr(self, index: int, *, has_follower: bool) -> None:
        self.partition_epoch += 1
        isr = REPLICAS if has_follower else (LEADER, OTHER)
        self.partitions[index].lead(
            self.partitions[index].leader_epoch, isr, REPLICAS, partition_epoch=self.partition_epoch
        )

    def begin_epoch(self, index: int) -> None:
        """Begin a leader epoch with the same leader."""
        self.epoch += 1
        self.partitions[index].lead(self.epoch, REPLICAS, REPLICAS, now=self.clock.monotonic())
        self.positions[index] = self.positions[index]._replace(leader_epoch=self.epoch)
        self._ask_for(index)

    def resign(self, index: int) -> None:
        """Another broker leads for a moment, without records of its own."""
        partition = self.partitions[index]
        self.epoch += 1
        partition.follow(OTHER, self.epoch)
        self.epoch += 1
        partition.lead(self.epoch, REPLICAS, REPLICAS, now=self.clock.monotonic())
        self.positions[index] = self.positions[index]._replace(leader_epoch=self.epoch)
        self._ask_for(index)

    def throttle(self, index: int, *, on: bool) -> None:
        self.partitions[index].update_config(replace(SMALL, leader_replication_throttled_replicas="*" if on else ""))

    def lose_session(self) -> None:
        self.plan.on_lost()

    def pause(self, seconds: float) -> None:
        self.clock.advance_ms(int(seconds * 1000))

    def state(self) -> list[Any]:
        """What the leader knows and wants, and what the follower was told."""
        now = self.clock.monotonic()
        return [
            (
                partition.high_watermark,
                partition.low_watermark,
                partition.followers[FOLLOWER].log_end_offset,
                partition.wanted_isr(now=now, lag_seconds=LAG_SECONDS, is_eligible=lambda *_: True),
                self.positions[partition.index],
                self.told[partition.index],
            )
            for partition in self.partitions
        ]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.served.leave()


def active(world: World) -> set[int]:
    assert world.session is not None
    return {index for _, index in world.session.active}


async def settle(world: World) -> None:
    """Fetch until no partition is active."""
    for partition in world.partitions:
        world.other_fetches(partition.index)
    for _ in range(4):
        await world.fetch()
    assert active(world) == set()


async def test_partitions_without_news_are_idle(world: World) -> None:
    await settle(world)
    world.append(2)
    assert active(world) == {2}
    found = await world.fetch()
    assert list(found) == [2]
    assert len(found[2].records) > 0


async def test_a_fetch_visits_only_partitions_with_news(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await settle(world)
    visited = []
    original = Partition.on_follower_fetch

    def note(partition: Partition, *args: Any, **options: Any) -> bool:
        visited.append(partition.index)
        return original(partition, *args, **options)

    monkeypatch.setattr(Partition, "on_follower_fetch", note)
    await world.fetch()
    assert visited == []
    world.append(1)
    world.append(4)
    await world.fetch()
    assert sorted(visited) == [1, 4]


@pytest.mark.parametrize("index", [0, 3])
async def test_a_fetch_waits_for_idle_partitions(world: World, index: int) -> None:
    await settle(world)
    world.send(wait_ms=500)
    await asyncio.sleep(0)
    assert world.waits
    assert len(world.client.answers()) == world.responses
    world.append(index)
    assert list(await world.take()) == [index]


async def test_a_waiting_fetch_does_not_wait_for_partitions_that_the_throttle_skips(world: World) -> None:
    await settle(world)
    world.change_isr(0, has_follower=False)
    world.throttle(0, on=True)
    await world.fetch()
    quota, now = world.served.services.throttles.leader, world.clock.monotonic()
    quota.limit(1, now)
    quota.record(1000, now)
    for _ in range(4):  # the connection has a fast lane after the first requests
        world.send(wait_ms=500)
        await asyncio.sleep(0)
        world.append(0)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert len(world.client.answers()) == world.responses, "the fetch waits on"
        world.append(1)
        found = await world.take()
        assert [index for index, answer in found.items() if answer.records] == [1]


async def test_a_waiting_fetch_learns_soon_of_the_high_watermark_of_an_idle_partition(world: World) -> None:
    for _ in range(3):
        await world.fetch()
    world.append(0)
    await world.fetch()
    await world.fetch()
    assert active(world) == set(), "broker 3 holds the high watermark back, and the follower knows that"
    world.served.deadlines.set.clear()
    world.send(wait_ms=500)
    await asyncio.sleep(0)
    world.served.deadlines.set.clear()  # without the deadline of the request
    world.other_fetches(0)
    assert world.partitions[0].high_watermark == 1
    world.served.deadlines.fire()
    assert (await world.take())[0].high_watermark == 1


@pytest.mark.parametrize("by", ["deletion", "retention"])
async def test_a_follower_learns_the_log_start_of_an_idle_partition(world: World, by: str) -> None:
    world.append(0)
    for _ in range(3):
        await world.fetch()
        world.other_fetches(0)
    await settle(world)
    partition = world.partitions[0]
    if by == "deletion":
        partition.delete_records_before(1)
    else:
        partition.update_config(replace(SMALL, retention_ms=1))
        partition.log.trimmer.roll()
        await settle(world)  # the change of the settings made the partition active
        partition.apply_retention(world.clock.now_ms() + DAY_MS)
    assert (await world.fetch())[0].log_start_offset == 1


async def test_a_replica_that_leaves_the_isr_must_fetch_again_before_it_may_join(world: World) -> None:
    await settle(world)
    world.change_isr(1, has_follower=False)
    assert active(world) == {1}
    await world.fetch()
    assert world.served.joining == [world.partitions[1]]
    assert active(world) == {1}, "a replica outside the ISR is considered at each fetch"


async def test_the_last_fetch_counts_for_an_idle_partition(world: World) -> None:
    """A follower that fetched until a moment ago is in sync when a record is appended, however long the partition was
    idle; and a follower that has stopped fetching is out of sync when the lag has passed.
    """
    await settle(world)
    partition = world.partitions[0]
    for _ in range(10):
        world.pause(LAG_SECONDS)
        await world.fetch()
    world.append(0)
    world.pause(LAG_SECONDS - 1)
    assert wanted(world, partition) == (LEADER, FOLLOWER), "only broker 3 has not fetched since"
    world.pause(2)
    assert wanted(world, partition) == (LEADER,)


def wanted(world: World, partition: Partition) -> tuple[int, ...] | None:
    now = world.clock.monotonic()
    return partition.wanted_isr(now=now, lag_seconds=LAG_SECONDS, is_eligible=lambda *_: True)


async def test_a_new_session_ends_the_former(world: World) -> None:
    await settle(world)
    former = world.session
    world.lose_session()
    await world.fetch()
    assert former is not world.session
    assert former is not None and former.is_closed
    for partition in world.partitions:
        assert former not in [reader.idle_in for reader in partition.purgatory.idle]  # type: ignore[attr-defined]


async def test_a_session_of_very_many_idle_partitions_ends_in_slices(tmp_path: Path) -> None:
    served = Served(tmp_path, partitions=3 * PARTITIONS_PER_STEP)
    sessions = served.services.fetch_sessions
    for partition in served.partitions:
        partition.lead(FIRST_LEADER_EPOCH, (LEADER, FOLLOWER), (LEADER, FOLLOWER))
    plan = FetchPlan(LIMITS)
    for partition in served.partitions:
        plan.ask_for((bytes(16), partition.index), FetchPosition(0, -1, FIRST_LEADER_EPOCH, 0))
    client = Client(served)
    request = plan.next_request(FOLLOWER, EPOCH, 0.0)
    client.send(replace(request, max_wait_ms=0), api=ApiKey.FETCH, version=17)
    ((_, response),) = await client.answered(1)
    assert response.session_id
    assert len(sessions._of_followers[FOLLOWER].active) == 0
    steps = sessions._activate_former(Follower(FOLLOWER, EPOCH), ends=True)
    activated = [len(sessions._of_followers[FOLLOWER].active) for _ in steps]
    assert activated == [PARTITIONS_PER_STEP, 2 * PARTITIONS_PER_STEP, 3 * PARTITIONS_PER_STEP]
    assert list(sessions._activate_former(Follower(FOLLOWER, EPOCH), ends=False)) == []
    served.leave()


@pytest.mark.parametrize("seed", range(6))
async def test_the_effects_are_those_of_a_visit_of_all_partitions(tmp_path: Path, seed: int) -> None:
    """The same events in two worlds; in one of them, no partition becomes idle."""
    random = Random(seed)
    worlds = World(tmp_path / "idle"), World(tmp_path / "visited", rests=False)
    events = [
        *[lambda w, i: w.append(i)] * 4,
        *[lambda w, i: w.other_fetches(i)] * 4,
        lambda w, i: w.delete(i),
        lambda w, i: w.change_isr(i, has_follower=False),
        *[lambda w, i: w.change_isr(i, has_follower=True)] * 2,
        lambda w, i: w.begin_epoch(i),
        lambda w, i: w.resign(i),
        lambda w, i: w.throttle(i, on=True),
        *[lambda w, i: w.throttle(i, on=False)] * 2,
        lambda w, i: w.pause(7.0),
    ]
    was_idle = 0
    try:
        for _ in range(ROUNDS):
            wait_ms = random.choice((0, 0, 500))
            for world in worlds:
                world.send(wait_ms)
            await asyncio.sleep(0)
            for _ in range(random.choice((0, 0, 1, 1, 3))):
                event, index = random.choice(events), random.randrange(PARTITIONS)
                for world in worlds:
                    event(world, index)
            await asyncio.sleep(0)
            answered = [len(world.client.answers()) for world in worlds]
            assert answered[0] == answered[1], "both wait, or none"
            for world in worlds:
                world.served.deadlines.fire()
            found = [await world.take() for world in worlds]
            assert told(found[0]) == told(found[1])
            assert worlds[0].state() == worlds[1].state()
            assert worlds[0].session is not None
            if random.random() < 0.03:
                for world in worlds:
                    world.lose_session()
            was_idle += PARTITIONS - len(worlds[0].session.active)
        assert was_idle > ROUNDS, "partitions were idle for a large part of the time"
        assert worlds[1].session is not None
        assert len(worlds[1].session.active) == PARTITIONS
    finally:
        for world in worlds:
            world.served.leave()


def told(found: dict[int, Any]) -> dict[int, Any]:
    """The contents of a response, without the records themselves, whose time stamps may differ."""
    return {
        index: (answer.error_code, answer.high_watermark, answer.log_start_offset, len(answer.records))
        for index, answer in found.items()
    }
