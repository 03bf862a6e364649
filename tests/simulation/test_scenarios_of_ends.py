"""Scenarios in which a broker dies at a step of the end of a transaction, or of a prepared transaction (KIP-939): all
records and offsets of the transaction become visible or none, as the producer was told, and the transactional id can
begin the next transaction.

Every step of every kind of end, with other faults and two client libraries, is in the kill matrices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest
from tests.simulation.stage import REPLICAS, Stage, play
from tests.simulation.transactional import LONG_MS, NAME, Transactional, until_stable

from oncelog_broker.coordinator.transaction.metadata import TransactionMetadata
from oncelog_broker.coordinator.transaction.states import TransactionState
from oncelog_protocol.errors import ErrorCode
from oncelog_simulation.workloads.group_wire import NOBODY, TXN_COMMIT_V2, GroupWire
from oncelog_simulation.workloads.wire import BUSY, V1_END, V2_END, Wire, code
from oncelog_testing.history.events import End, Outcome, Place

GROUP = "group"
PLACES = tuple(Place("lines", index) for index in range(3))
LOOK_SECONDS = 0.0002
"""Virtual seconds between two looks for the step at which a broker is killed; a step takes more than a millisecond."""
PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
COMPLETE = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
POINTS = pytest.mark.parametrize("point", ["prepare logged", "reply sent", "marker written", "complete logged"])
ENDS = pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])


class Struck:
    """Kills one broker at a step of the end of a transaction."""

    def __init__(self, stage: Stage, point: str) -> None:
        self._stage = stage
        self._point = point
        self.killed = -1
        """The id of the broker that was killed; -1 if none was."""

    async def strike(self, end: Callable[[], object]) -> None:
        """Kill the coordinator, or the leader of a partition that has got a marker, at the step. `end` returns a true
        value when the producer has got the response to its request.
        """
        reached = {
            "prepare logged": lambda: self._coordinator(PREPARED),
            "reply sent": lambda: self._coordinator(PREPARED | COMPLETE) if end() else -1,
            "marker written": lambda: self._leader_with_marker(ends),
            "complete logged": lambda: self._coordinator(COMPLETE),
        }[self._point]
        ends = {place: self._stage.log_end(self._stage.state(*place).leader, *place) for place in PLACES}
        await self._stage.until(lambda: reached() >= 0, self._point, pause=LOOK_SECONDS)
        number = reached()
        self._stage.broker(number).hold()
        self._stage.broker(number).kill()
        self.killed = number

    def _coordinator(self, states: frozenset[TransactionState]) -> int:
        metadata = {number: metadata_at(self._stage, number) for number in REPLICAS}
        return next((number for number, found in metadata.items() if found is not None and found.state in states), -1)

    def _leader_with_marker(self, ends: dict[Place, int]) -> int:
        for place, end in ends.items():
            leader = self._stage.state(*place).leader
            if self._stage.log_end(leader, *place) > end:
                return leader
        return -1

    async def bring_back(self) -> None:
        self._stage.broker(self.killed).let_start()
        for topic, index in PLACES:
            await self._stage.until_isr(topic, set(REPLICAS), index)


def metadata_at(stage: Stage, number: int) -> TransactionMetadata | None:
    """Return the state of the transactional id, if this broker coordinates it."""
    broker = stage.broker(number).broker
    machines = () if broker is None else broker.parts.coordinators.transactions.runtime.machines()
    return next((found for machine in machines if (found := machine.transactions.get(NAME)) is not None), None)


def committed_offset(stage: Stage, place: Place) -> int:
    """Return the committed offset of the group, as its coordinator has it; -1 if there is none."""
    for machine in stage.world.brokers.values():
        assert machine.broker is not None
        for coordinating in machine.broker.parts.coordinators.groups.runtime.machines():
            found = coordinating.offsets.get(GROUP, *place)
            if found is not None:
                return found.offset
    return -1


@POINTS
@ENDS
def test_c4_a_broker_dies_at_the_end_of_a_transaction(point: str, commits: bool) -> None:
    async def script(stage: Stage) -> None:
        await stage.topic("lines", (1, 2, 3), (2, 3, 1), (3, 1, 2))

        async def work(wire: Wire) -> None:
            producer = Transactional(stage, wire, is_v2=True)
            for number in range(3):
                await producer.take_over() if number == 0 else producer.begin_next()
                for place in PLACES:
                    await producer.write(place)
                noted = stage.history.commit(GROUP, PLACES[0], number + 1, producer.transaction)
                commit = GroupWire(wire, GROUP).commit_in_transaction
                offsets = {noted.place: noted.offset}
                ask = partial(commit, NOBODY, offsets, NAME, producer.producer, TXN_COMMIT_V2)
                assert await wire.until_decided(ask, code, BUSY) is ErrorCode.NONE
                stage.history.commit_answered(noted, Outcome.ACKNOWLEDGED)
                if number != 1:
                    assert await producer.end(commits=commits) is ErrorCode.NONE
                    continue
                struck, ending = Struck(stage, point), asyncio.create_task(producer.end(commits=commits))
                await struck.strike(ending.done)
                assert await ending is ErrorCode.NONE
                await struck.bring_back()
            for place in PLACES:
                await until_stable(stage, place)
            await stage.until(
                lambda: committed_offset(stage, PLACES[0]) == (3 if commits else -1), "the offset is there"
            )

        await stage.on_wire(work, "lines")

    play(script)


@POINTS
@ENDS
def test_s120_brokers_die_between_prepare_and_complete_and_while_it_ends(point: str, commits: bool) -> None:
    """The coordinator of a prepared transaction dies. A successor of the application takes the transaction over and
    ends it, and a broker dies at a step of that end. The producer that had prepared the transaction cannot end it.
    """

    async def script(stage: Stage) -> None:
        await stage.topic("lines", (1, 2, 3), (2, 3, 1), (3, 1, 2))

        async def work(wire: Wire) -> None:
            producer = Transactional(stage, wire, is_v2=True)
            await producer.take_over(is_two_phase=True)
            for place in PLACES:
                await producer.write(place)
            transaction, zombie = producer.transaction, producer.producer
            assert transaction is not None
            coordinator = next(number for number in REPLICAS if metadata_at(stage, number) is not None)
            stage.broker(coordinator).hold()
            stage.broker(coordinator).kill()
            await stage.until(
                lambda: any(metadata_at(stage, number) is not None for number in stage.others(coordinator)),
                "another coordinator has loaded the prepared transaction",
            )
            stage.broker(coordinator).let_start()
            for topic, index in PLACES:
                await stage.until_isr(topic, set(REPLICAS), index)
            told, successor = await wire.until_decided(partial(wire.init, NAME, LONG_MS, is_two_phase=True), code, BUSY)
            assert told is ErrorCode.NONE
            end = partial(wire.end, NAME, successor, commits=commits, version=V2_END)
            struck, ending = Struck(stage, point), asyncio.create_task(wire.until_decided(end, code, BUSY))
            await struck.strike(ending.done)
            told, _ = await ending
            assert told is ErrorCode.NONE
            stage.history.ended(transaction, End.COMMITTED if commits else End.ABORTED)
            await struck.bring_back()
            for version in (V1_END, V2_END):
                late = partial(wire.end, NAME, zombie, commits=not commits, version=version)
                told, _ = await wire.until_decided(late, code, BUSY)
                assert told is ErrorCode.PRODUCER_FENCED
            for place in PLACES:
                await until_stable(stage, place)

        await stage.on_wire(work, "lines")

    play(script)
