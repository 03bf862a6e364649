"""Members of a group of the consumer protocol (KIP-848) that use an epoch in which they did not have a partition, or
that have left; and commits in transactions that end after a later commit.

Each client has its own group, and sends the requests of all its members itself. The client complains if the coordinator
accepts a request that it must refuse. Accepted commits are noted, so that the judges find committed offsets that go
back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from oncelog.errors import KafkaError
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_simulation.workloads.group_wire import TXN_COMMIT_V2, GroupWire, Membership
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.wire import BUSY, V2_END, Wire, code
from oncelog_simulation.workloads.workload import ClientWorkload, make_topic, pause
from oncelog_testing.history.events import Commit, End, Outcome, Place, Transaction

if TYPE_CHECKING:
    from oncelog_simulation.world import World

NEWER_GRAVES: Final = "newer-graves"
PARTITIONS: Final = 2
HEARTBEAT, COMMIT = 1, 9
JOINING, LEAVING = 0, -1
BEAT_SECONDS: Final = 0.1
SETTLE_SECONDS: Final = 25.0
"""Seconds in which the members of a story must get all partitions; meanwhile the sessions of earlier members expire."""
REBALANCE_MS: Final = 6_000
TIMEOUT_MS: Final = 10_000

TopicPartitions = ConsumerGroupHeartbeatRequest.TopicPartitions


class NewerGhost(ClientWorkload):
    """Plays one story after another with the same group."""

    def __init__(self, notes: Notes, name: str) -> None:
        super().__init__(notes, name)
        self._rounds = 0
        self._offset = 0

    @property
    def group(self) -> str:
        return f"{self.name}-group"

    async def prepare(self, world: World) -> None:
        await make_topic(world, self.notes, NEWER_GRAVES, PARTITIONS)

    async def live(self, world: World) -> None:
        rng = self.random(world)
        async with Wire(world.bootstrap_servers) as wire:
            goes_on = self.counts_down(world)
            while goes_on:
                self._rounds += 1
                story = NewerStory(self, world, wire, rng, f"{self.name}-{self.lives}-{self._rounds}")
                try:
                    await rng.choice((story.regain, story.commit_in_transaction))()
                except KafkaError as error:
                    world.note(self.name, "a story was broken off", error=error.code.name)
                    await asyncio.sleep(0.1)
                else:
                    self.notes.step(self.name)
                await pause(world, rng.expovariate(1))

    def next_offset(self) -> int:
        """Return an offset above all offsets that the members have committed so far."""
        self._offset += 1
        return self._offset


class NewerMember:
    """One member: sends its heartbeats, and gives up at once the partitions that it must give up."""

    def __init__(self, wire: Wire, group: str, member_id: str) -> None:
        self._wire = wire
        self._group = group
        self.member_id = member_id
        self.epoch = JOINING
        self.owned: frozenset[int] = frozenset()
        self._topic_id = b""

    async def beat(self, epoch: int | None = None) -> ErrorCode:
        """Send a heartbeat, by default with the member's epoch, and adopt the epoch and partitions of the response."""
        epoch = self.epoch if epoch is None else epoch
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[NEWER_GRAVES],
            topic_partitions=self._claims() if epoch != JOINING else [],
        )
        answer = await self._wire.until_decided(partial(self._send, request), _code_of)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            for assigned in () if answer.assignment is None else answer.assignment.topic_partitions:
                self._topic_id = assigned.topic_id
            if answer.assignment is not None:
                given = answer.assignment.topic_partitions
                self.owned = frozenset(number for each in given for number in each.partitions)
        return ErrorCode.of(answer.error_code)

    def _claims(self) -> list[TopicPartitions]:
        if not self.owned:
            return []
        return [TopicPartitions(topic_id=self._topic_id, partitions=sorted(self.owned))]

    async def _send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        return await self._wire.to_coordinator(self._group, request, HEARTBEAT, CoordinatorType.GROUP)

    async def commit(self, place: Place, offset: int, epoch: int) -> ErrorCode:
        """Commit an offset with the given member epoch."""
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        committed = topic.OffsetCommitRequestPartition(
            partition_index=place.index, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=epoch,
            member_id=self.member_id,
            topics=[topic(name=place.topic, partitions=[committed])],
        )
        send = partial(self._wire.to_coordinator, self._group, request, COMMIT, CoordinatorType.GROUP)
        answer = await self._wire.until_decided(
            send, lambda answer: ErrorCode.of(answer.topics[0].partitions[0].error_code)
        )
        return ErrorCode.of(answer.topics[0].partitions[0].error_code)


def _code_of(answer: ConsumerGroupHeartbeatResponse) -> ErrorCode:
    return ErrorCode.of(answer.error_code)


class NewerStory:
    """One sequence of requests, with new members."""

    def __init__(self, ghost: NewerGhost, world: World, wire: Wire, rng: Random, prefix: str) -> None:
        self._ghost = ghost
        self._world = world
        self._wire = wire
        self._rng = rng
        self._history = ghost.notes.history
        self._prefix = prefix

    async def regain(self) -> None:
        """A partition goes from the first member to the second and back. The first member then commits it with the
        epoch in which the second member had it, and with the epoch before; at last it leaves, and goes on. Raises
        KafkaError.
        """
        first, second = self._member("a"), self._member("b")
        await self._settle([first])
        before = first.epoch
        await self._settle([first, second])
        between, lent = first.epoch, min(second.owned)
        await self._commit(second, lent)
        self._must_be_refused("a commit of another member's partition", await self._late(first, lent, before))
        await second.beat(LEAVING)
        await self._settle([first])
        await self._commit(first, lent)
        for epoch in self._rng.sample((before, between), 2):
            refused = await self._late(first, lent, epoch)
            self._must_be_refused(f"a commit with epoch {epoch}, though the member has the partition since", refused)
        last = first.epoch
        await first.beat(LEAVING)
        self._must_be_refused("a commit of a member that has left", await self._late(first, lent, last))
        self._must_be_refused("a heartbeat of a member that has left", await first.beat(last))

    async def commit_in_transaction(self) -> None:
        """A member commits an offset in a transaction and then a larger one without, before the transaction ends: the
        later commit stays. Raises KafkaError.
        """
        member = self._member("a")
        await self._settle([member])
        place = Place(NEWER_GRAVES, self._rng.randrange(PARTITIONS))
        transactional_id = f"{self._ghost.name}-producer"
        told, producer = await self._wire.until_decided(
            partial(self._wire.init, transactional_id, TIMEOUT_MS), code, BUSY
        )
        if told:
            raise KafkaError(told)
        transaction = self._history.transaction(self._ghost.name)
        pending = self._note(place, transaction)
        membership = Membership(member.member_id, member.epoch)
        ask = partial(
            GroupWire(self._wire, self._ghost.group).commit_in_transaction,
            *(membership, {place: pending.offset}, transactional_id, producer, TXN_COMMIT_V2),
        )
        told = await self._wire.until_decided(ask, code, BUSY)
        self._history.commit_answered(pending, Outcome.UNKNOWN if told else Outcome.ACKNOWLEDGED)
        await self._commit(member, place.index)
        end = partial(self._wire.end, transactional_id, producer, commits=not told, version=V2_END)
        ended, _ = await self._wire.until_decided(end, code, BUSY)
        if ended:
            raise KafkaError(ended)
        self._history.ended(transaction, End.ABORTED if told else End.COMMITTED)
        await member.beat(LEAVING)

    # --- steps

    def _member(self, suffix: str) -> NewerMember:
        return NewerMember(self._wire, self._ghost.group, f"{self._prefix}-{suffix}")

    async def _settle(self, members: Sequence[NewerMember]) -> None:
        """Send heartbeats until the members have all partitions, in one epoch. Raises KafkaError if a member was
        removed, or if other members keep partitions.
        """
        deadline = self._world.now + SETTLE_SECONDS
        while self._world.now < deadline:
            for member in members:
                refused = await member.beat()
                if refused:
                    raise KafkaError(refused)
            has_all = sum(len(member.owned) for member in members) == PARTITIONS
            if has_all and len({member.epoch for member in members}) == 1 and all(member.owned for member in members):
                return
            await asyncio.sleep(BEAT_SECONDS)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    async def _commit(self, member: NewerMember, index: int) -> None:
        """Commit a partition of the member, in its epoch."""
        noted = self._note(Place(NEWER_GRAVES, index), None)
        told = await member.commit(noted.place, noted.offset, member.epoch)
        self._history.commit_answered(noted, Outcome.UNKNOWN if told else Outcome.ACKNOWLEDGED)

    async def _late(self, member: NewerMember, index: int, epoch: int) -> ErrorCode:
        """Commit an old offset, which the coordinator must refuse."""
        return await member.commit(Place(NEWER_GRAVES, index), 0, epoch)

    def _note(self, place: Place, transaction: Transaction | None) -> Commit:
        return self._history.commit(self._ghost.group, place, self._ghost.next_offset(), transaction)

    def _must_be_refused(self, what: str, told: ErrorCode) -> None:
        if not told:
            self._ghost.notes.complain(self._world, self._ghost.name, f"{what} was accepted")
