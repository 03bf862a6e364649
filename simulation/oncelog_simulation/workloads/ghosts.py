"""Group members that continue after they have lost their membership: their commits must be refused.

Each client has its own group, sends the requests of all members of this group itself, and has transactional producers
that commit offsets for the members. The client complains immediately if a broker accepts a request that it must refuse.
Accepted commits are noted, so that the judges also find committed offsets that go back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from oncelog.errors import KafkaError
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_simulation.workloads.group_wire import NOBODY, TXN_COMMIT, TXN_COMMIT_V2, GroupWire, Membership
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.wire import BUSY, MOVED, V1_END, V2_END, Wire, code
from oncelog_simulation.workloads.workload import ClientWorkload, make_topic, pause
from oncelog_testing.history.events import Commit, End, Outcome, Place, Transaction

if TYPE_CHECKING:
    from oncelog_simulation.world import World

T = TypeVar("T")

GRAVES: Final = "graves"
PLACE: Final = Place(GRAVES, 0)
SESSION_MS: Final = 6_000
REBALANCE_MS: Final = 6_000
HEARTBEAT_SECONDS: Final = 0.3
TIMEOUT_MS: Final = 10_000
JOIN_TRIES: Final = 10
SETTLE_SECONDS: Final = 25.0
"""Seconds in which members try to form one generation; meanwhile the sessions of earlier members expire."""
JOINING: Final = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""Errors after which a member joins again."""


class Ghost(ClientWorkload):
    """Plays one story after another with the same group. A story is a sequence of requests of which the broker must
    refuse some.
    """

    def __init__(self, notes: Notes, name: str) -> None:
        super().__init__(notes, name)
        self.offset = 0
        """The largest offset of all commits; each new commit uses a larger one."""
        self.rounds = 0

    async def prepare(self, world: World) -> None:
        await make_topic(world, self.notes, GRAVES, 1)

    async def live(self, world: World) -> None:
        rng = self.random(world)
        async with Wire(world.bootstrap_servers) as wire, Wire(world.bootstrap_servers) as second:
            goes_on = self.counts_down(world)
            while goes_on:
                self.rounds += 1
                story = Story(self, world, wire, second, rng)
                name, play = rng.choice(story.plays)
                try:
                    await play()
                except KafkaError as error:
                    world.note(self.name, "a story was broken off", story=name, error=error.code.name)
                    await asyncio.sleep(0.1)
                else:
                    self.notes.step(self.name)
                await pause(world, rng.expovariate(1))


class Story:
    """Plays a story: members join, and then one of them loses its membership but continues to send requests."""

    def __init__(self, ghost: Ghost, world: World, wire: Wire, second: Wire, rng: Random) -> None:
        """`second` has the connections of the second member: a join that waits for the other member would block the
        requests behind it on the same connection.
        """
        self._ghost = ghost
        self._world = world
        self._wire = wire
        self._rng = rng
        self._history = ghost.notes.history
        self._group = f"{ghost.name}-group"
        self._members = GroupWire(wire, self._group)
        self._joining = self._members, GroupWire(second, self._group)
        """One for each member that joins at the same time."""
        self._is_v2 = rng.random() < 0.5
        self._transactional_id = f"{ghost.name}-producer"
        self.plays: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("an old generation", self._old_generation),
            ("a member that has left", self._has_left),
            ("a static member that was replaced", self._replaced),
            ("somebody from outside", self._outsider),
            ("a fenced producer", self._fenced_producer),
            ("committed and aborted", self._in_transactions),
        ]

    # --- the stories that a ghost plays

    async def _old_generation(self) -> None:
        """Another member joins, and the first member continues to use the previous generation."""
        (first,) = await self._stable([NOBODY])
        await self._commit(first)
        now, second = await self._stable([first, NOBODY])
        await self._ghost_goes_on(first, "a member of an earlier generation")
        await self._commit(now)
        await self._leave(second)
        await self._leave(now)

    async def _has_left(self) -> None:
        """A member leaves, but continues to send requests; the group may have another member, or none. The other member
        joins again before that, because a coordinator logs a leave only with the next generation, as in Kafka: a later
        coordinator that has not logged that generation takes the member for one that has not left.
        """
        leaver, *others = await self._stable([NOBODY] * self._rng.choice((1, 2)))
        await self._commit(leaver)
        await self._leave(leaver)
        others = await self._stable(others)
        if all(other.generation > leaver.generation for other in others):
            await self._ghost_goes_on(leaver, "a member that has left")
        for member in others:
            await self._leave(member)

    async def _replaced(self) -> None:
        """A second process joins with the group instance id of a static member, and the first process continues."""
        instance = f"{self._ghost.name}-static"
        place = Membership("", -1, instance)
        (elder,) = await self._stable([place])
        await self._commit(elder)
        (younger,) = await self._stable([place])
        if younger.member_id != elder.member_id:
            await self._ghost_goes_on(elder, "a static member that was replaced")
        await self._commit(younger)
        await self._leave(younger)

    async def _outsider(self) -> None:
        """A client that is not a member commits while the group has members."""
        (member,) = await self._stable([NOBODY])
        stranger = Membership("stranger", member.generation)
        await self._ghost_goes_on(stranger, "a member that never joined")
        if await self._is_member(member):
            refused = await self._decided(partial(self._members.commit, NOBODY, {PLACE: self._ghost.offset}))
            if await self._is_member(member):
                self._must_be_refused("a commit of nobody beside members", refused)
        await self._leave(member)

    async def _fenced_producer(self) -> None:
        """A producer whose transactional id was taken over commits offsets."""
        elder = await self._take_over()
        await self._decided(partial(self._add_offsets, elder), BUSY)
        await self._take_over()
        late = await self._commit_in_transaction(NOBODY, elder, self._next_offset())
        self._must_be_refused("offsets of a fenced producer", late)

    async def _in_transactions(self) -> None:
        """Members commit offsets in transactions, some of which are aborted."""
        (member,) = await self._stable([NOBODY])
        producer = await self._take_over()
        for _ in range(2):
            transaction = self._history.transaction(self._ghost.name)
            noted = self._note(transaction)
            told = await self._commit_in_transaction(member, producer, noted.offset)
            self._history.commit_answered(noted, Outcome.UNKNOWN if told else Outcome.ACKNOWLEDGED)
            commits = not told and self._rng.random() < 0.6
            version = V2_END if self._is_v2 else V1_END
            ended, producer = await self._decided(
                partial(self._wire.end, self._transactional_id, producer, commits=commits, version=version), BUSY
            )
            if ended:
                raise KafkaError(ended)
            self._history.ended(transaction, End.COMMITTED if commits else End.ABORTED)
        await self._leave(member)

    async def _ghost_goes_on(self, ghost: Membership, what: str) -> None:
        """Commit as the former member, with and without a transaction, and send its heartbeat; the coordinator must
        refuse all three requests.
        """
        refused = await self._decided(partial(self._members.commit, ghost, {PLACE: self._ghost.offset}))
        self._must_be_refused(f"a commit of {what}", refused)
        self._must_be_refused(f"a heartbeat of {what}", await self._decided(partial(self._members.heartbeat, ghost)))
        producer = await self._take_over()
        late = await self._commit_in_transaction(ghost, producer, self._ghost.offset)
        self._must_be_refused(f"offsets in a transaction of {what}", late)

    # --- steps

    async def _stable(self, asking: list[Membership]) -> list[Membership]:
        """Join with all members until all have their assignments in the same generation. Raises KafkaError."""
        settled: list[Membership | None] = [None] * len(asking)

        def are_settled() -> bool:
            generations = {None if member is None else member.generation for member in settled}
            return None not in generations and len(generations) == 1

        async def settle(number: int) -> None:
            member, line = asking[number], self._joining[number]
            while not are_settled():
                member = await self._join(line, member)
                settled[number] = None if await line.decided(partial(line.sync, member)) else member
                while settled[number] is not None and not are_settled():
                    await asyncio.sleep(HEARTBEAT_SECONDS)
                    if await line.decided(partial(line.heartbeat, member)):
                        settled[number] = None

        try:
            async with asyncio.timeout(SETTLE_SECONDS), asyncio.TaskGroup() as tasks:
                for number in range(len(asking)):
                    tasks.create_task(settle(number))
        except TimeoutError:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS) from None
        except ExceptionGroup as errors:  # `except*` would put the KafkaError into a group again
            refused, others = errors.split(KafkaError)
            if refused is None or others is not None:
                raise
            raise refused.exceptions[0] from None
        return [member for member in settled if member is not None]

    async def _join(self, line: GroupWire, member: Membership) -> Membership:
        member_id = member.member_id
        for _ in range(JOIN_TRIES):
            told, joined = await line.decided(partial(line.join, member_id, member.instance, SESSION_MS, REBALANCE_MS))
            if not told:
                return joined
            if told is ErrorCode.MEMBER_ID_REQUIRED:
                member_id = joined.member_id
            elif told in JOINING:
                member_id = ""
            else:
                raise KafkaError(told)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    async def _is_member(self, member: Membership) -> bool:
        return not await self._decided(partial(self._members.heartbeat, member))

    async def _leave(self, member: Membership) -> None:
        await self._decided(partial(self._members.leave, member))

    async def _commit(self, member: Membership) -> None:
        """Send a commit of a current member, which the coordinator must accept unless the member's session has expired
        meanwhile.
        """
        noted = self._note(None)
        told = await self._decided(partial(self._members.commit, member, {PLACE: noted.offset}))
        self._history.commit_answered(noted, Outcome.UNKNOWN if told else Outcome.ACKNOWLEDGED)

    def _note(self, transaction: Transaction | None) -> Commit:
        return self._history.commit(self._group, PLACE, self._next_offset(), transaction)

    def _next_offset(self) -> int:
        self._ghost.offset += 1
        return self._ghost.offset

    async def _take_over(self) -> ProducerIdAndEpoch:
        told, producer = await self._decided(partial(self._wire.init, self._transactional_id, TIMEOUT_MS), BUSY)
        if told:
            raise KafkaError(told)
        return producer

    async def _add_offsets(self, producer: ProducerIdAndEpoch) -> ErrorCode:
        if self._is_v2:
            return ErrorCode.NONE
        return await self._wire.add_offsets(self._transactional_id, producer, self._group)

    async def _commit_in_transaction(self, member: Membership, producer: ProducerIdAndEpoch, offset: int) -> ErrorCode:
        added = await self._decided(partial(self._add_offsets, producer), BUSY)
        if added:
            return added
        version = TXN_COMMIT_V2 if self._is_v2 else TXN_COMMIT
        offsets = {PLACE: offset}
        commit = self._members.commit_in_transaction
        return await self._decided(partial(commit, member, offsets, self._transactional_id, producer, version), BUSY)

    async def _decided(self, ask: Callable[[], Awaitable[T]], passing: frozenset[ErrorCode] = MOVED) -> T:
        return await self._wire.until_decided(ask, code, passing)

    def _must_be_refused(self, what: str, told: ErrorCode) -> None:
        if not told:
            self._ghost.notes.complain(self._world, self._ghost.name, f"{what} was accepted")
