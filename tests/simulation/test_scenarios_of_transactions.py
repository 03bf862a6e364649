"""Scenarios that went wrong elsewhere (rules E of docs/reference/rules.md), with three brokers and virtual time: the
last stable offset always advances, and no acknowledged record of a committed transaction is lost.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from tests.simulation.stage import REPLICAS, Stage, play
from tests.simulation.transactional import LONG_MS, NAME, SOON_SECONDS, Transactional, until_stable

from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_simulation.workloads.group_wire import NOBODY, TXN_COMMIT, TXN_COMMIT_V2, GroupWire
from oncelog_simulation.workloads.late_peers import PeerWire
from oncelog_simulation.workloads.wire import BUSY, INIT, Wire, code
from oncelog_testing.history.events import End, Place

V1_AND_V2 = pytest.mark.parametrize("is_v2", [False, True], ids=["V1", "V2"])


def test_s5_a_transactional_id_goes_to_its_coordinator() -> None:
    """Any other broker refuses InitProducerId for the id, and each broker gives a producer without an id a new one."""

    async def script(stage: Stage) -> None:
        async def work(wire: Wire) -> None:
            assert isinstance(wire, PeerWire)
            await wire.until_decided(partial(wire.init, NAME, LONG_MS), code, BUSY)
            request = partial(InitProducerIdRequest, transaction_timeout_ms=LONG_MS)
            asked = {number: await wire.to_broker(number, request(transactional_id=NAME), INIT) for number in REPLICAS}
            told = [ErrorCode.of(answer.error_code) for answer in asked.values()]
            assert sorted(told) == [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR]
            without = [await wire.to_broker(number, request(transactional_id=None), INIT) for number in REPLICAS]
            assert len({answer.producer_id for answer in (*without, *asked.values())} - {-1}) == 1 + len(REPLICAS)
            empty = await wire.to_broker(1, request(transactional_id=""), INIT)
            assert (empty.error_code, empty.producer_id) == (ErrorCode.INVALID_REQUEST, -1)

        await stage.on_wire(work, wire_type=PeerWire)

    play(script, seconds=10.0)


def test_e4_partitions_are_added_while_others_are_written() -> None:
    """KAFKA-14904: the verification of a record is not refused while the coordinator adds another partition."""

    async def script(stage: Stage) -> None:
        await stage.topic("lines", REPLICAS, REPLICAS)
        first, second = Place("lines", 0), Place("lines", 1)

        async def work(wire: Wire) -> None:
            producer = Transactional(stage, wire, is_v2=False)
            for _ in range(10):
                await producer.take_over()
                assert await wire.until_decided(partial(producer.add, first), code, BUSY) is ErrorCode.NONE
                added, _ = await asyncio.gather(producer.add(second), producer.write(first))
                assert added is ErrorCode.NONE
                await producer.write(second)
                assert await producer.end(commits=True) is ErrorCode.NONE

        await stage.on_wire(work, "lines")
        for place in (first, second):
            await until_stable(stage, place)

    play(script)


@V1_AND_V2
def test_e5_offsets_after_the_end_are_refused(is_v2: bool) -> None:
    """KAFKA-15449: offsets that arrive after the end of their transaction are neither committed nor pending."""

    async def script(stage: Stage) -> None:
        await stage.topic("lines")

        async def work(wire: Wire) -> None:
            producer = Transactional(stage, wire, is_v2=is_v2)
            await producer.begin(Place("lines"))
            old = producer.producer
            assert await producer.end(commits=False) is ErrorCode.NONE
            await until_stable(stage, Place("lines"))
            version = TXN_COMMIT_V2 if is_v2 else TXN_COMMIT
            commit = partial(
                GroupWire(wire, "group").commit_in_transaction, NOBODY, {Place("lines"): 42}, NAME, old, version
            )
            assert await wire.until_decided(commit, code, BUSY) is not ErrorCode.NONE
            for machine in stage.world.brokers.values():
                assert machine.broker is not None
                for coordinating in machine.broker.parts.coordinators.groups.runtime.machines():
                    assert not coordinating.offsets.has("group")

        await stage.on_wire(work, "lines")

    play(script)


@V1_AND_V2
def test_e6_a_transaction_older_than_the_producer_expiry_is_completed(is_v2: bool) -> None:
    """KAFKA-9144: a producer with an open transaction does not expire, and the end of the transaction keeps it."""
    settings = {"producer.id.expiration.ms": "5000", "producer.id.expiration.check.interval.ms": "500"}

    async def script(stage: Stage) -> None:
        await stage.topic("lines")

        async def work(wire: Wire) -> None:
            producer = Transactional(stage, wire, is_v2=is_v2)
            await producer.begin(Place("lines"))
            await asyncio.sleep(8.0)
            assert await producer.end(commits=True) is ErrorCode.NONE
            await until_stable(stage, Place("lines"))
            for number in REPLICAS:
                replica = stage.replica(number, "lines")
                assert replica is not None
                assert replica.log.producer_state.get(producer.producer.producer_id) is not None

        await stage.on_wire(work, "lines")

    play(script, settings=settings, seconds=11.0)


@V1_AND_V2
def test_e19_a_new_epoch_aborts_the_old_transaction_at_once(is_v2: bool) -> None:
    """KAFKA-9600: the successor need not wait for the timeout of its predecessor's transaction, nor do readers."""

    async def script(stage: Stage) -> None:
        await stage.topic("lines")

        async def work(wire: Wire) -> None:
            elder = Transactional(stage, wire, is_v2=is_v2)
            await elder.begin(Place("lines"))
            assert elder.transaction is not None
            stage.history.ended(elder.transaction, End.ABORTED)
            began = stage.world.now
            successor = Transactional(stage, wire, is_v2=is_v2)
            await successor.take_over()
            await until_stable(stage, Place("lines"))
            assert stage.world.now - began < SOON_SECONDS
            assert await elder.end(commits=True) is not ErrorCode.NONE

        await stage.on_wire(work, "lines")

    play(script)


@V1_AND_V2
def test_e22_a_transaction_survives_the_death_of_its_coordinator_and_of_a_leader_before_its_end(is_v2: bool) -> None:
    """The broker that coordinates the transaction and leads its partition is killed before the end is requested."""

    async def script(stage: Stage) -> None:
        await stage.topic("lines", (1, 2, 3), (2, 3, 1), (3, 1, 2))

        async def work(wire: Wire) -> None:
            producer = Transactional(stage, wire, is_v2=is_v2)
            await producer.take_over()
            runtime = stage.broker(1).broker
            assert runtime is not None
            coordinator = runtime.parts.coordinators.transactions.runtime.leader_of(NAME)
            led = next(index for index in range(3) if stage.state("lines", index).leader == coordinator)
            await producer.begin(Place("lines", led))
            stage.broker(coordinator).hold()
            stage.broker(coordinator).kill()
            assert await producer.end(commits=True) is ErrorCode.NONE
            await stage.until_led("lines", led, but_by=coordinator)
            stage.broker(coordinator).let_start()
            await stage.until_isr("lines", set(REPLICAS), led)
            await until_stable(stage, Place("lines", led))

        await stage.on_wire(work, "lines")

    play(script)
