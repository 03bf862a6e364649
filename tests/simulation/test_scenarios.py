"""Scenarios of fail-over, step by step, in the simulated cluster: what exactly once promises when leaders, coordinators
and sessions end at the worst moment. Live clusters run one scenario of each mechanism (`tests/cluster`).
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from tests.simulation.stage import REPLICAS, SESSION_SECONDS, Stage, play

from oncelog import KafkaError
from oncelog.clock import now_ms
from oncelog.errors import ConnectionFailed
from oncelog_broker.log.checkpoints import HIGH_WATERMARK_CHECKPOINT
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_simulation.workloads.wire import BUSY, V1_PRODUCE, V2_END, V2_PRODUCE, Answered, Wire, code, one_record
from oncelog_testing.history.events import End, Place, Send

TRANSACTIONS = "__transaction_state"
ORDERS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
TIMEOUT_MS = 60_000
FAIL_OVER_SECONDS = SESSION_SECONDS + 2
IN_FLIGHT = 7
"""Batches in flight, more than the five batches of a producer that a log remembers."""


def test_producers_wait_at_most_two_seconds_longer_than_a_session_for_the_next_leader() -> None:
    waits = []

    async def script(stage: Stage) -> None:
        await stage.topic("lines")
        async with stage.writing(Place("lines")) as writing:
            for _ in range(2):
                await writing.until_more(5)
                leader = await stage.until_led("lines")
                stage.broker(leader).hold()
                stage.broker(leader).kill()
                began = stage.world.now
                await stage.until_led("lines", but_by=leader)
                await writing.until_more(1)
                waits.append(stage.world.now - began)
                stage.broker(leader).let_start()
                await stage.until_isr("lines", set(REPLICAS))

    play(script)
    assert len(waits) == 2
    assert max(waits) <= FAIL_OVER_SECONDS, waits


def test_c16_leaders_change_again_and_again() -> None:
    """Some records are written with acks=1 to a leader that dies, so that each new leader meets replicas with records
    of their own.
    """

    async def script(stage: Stage) -> None:
        await stage.topic("lines")
        async with stage.writing(Place("lines")) as writing:
            for number in range(6):
                await writing.until_more(5)
                leader = await stage.until_led("lines")
                machine = stage.broker(leader)
                for other in stage.others(leader):
                    stage.world.network.cut(f"broker-{other}", machine.name)
                end = stage.log_end(leader, "lines")
                await stage.until(lambda: stage.log_end(leader, "lines") > end, "the leader has records of its own")  # noqa: B023
                machine.hold()
                machine.kill()
                stage.world.network.mend_all()
                if number % 2:  # restart the broker immediately, before another broker has noticed its death
                    machine.let_start()
                else:
                    await stage.until_led("lines", but_by=leader)
                    machine.let_start()
                await writing.until_more(5)
                await stage.until_isr("lines", set(REPLICAS))

    play(script, seconds=120.0)


@pytest.mark.parametrize("order", ORDERS)
def test_c20_all_brokers_are_killed(order: tuple[int, ...]) -> None:
    """All brokers die but the machines keep running, so no log loses its last records, and the first broker that starts
    may lead the partitions that it led before.
    """

    async def script(stage: Stage) -> None:
        await stage.topic("lines", (1, 2, 3), (2, 3, 1), (3, 1, 2))
        async with stage.writing(*(Place("lines", index) for index in range(3))) as writing:
            await writing.until_more(30)
            for number in REPLICAS:
                stage.broker(number).hold()
                stage.broker(number).kill()
            for number in order:
                stage.broker(number).let_start()
                await stage.until(lambda: stage.broker(number).is_serving, "it serves")  # noqa: B023
            await writing.until_more(30)

    play(script)


def test_c5_coordinator_state_survives_the_death_of_all_coordinators() -> None:
    """All brokers are killed, and no high watermark was checkpointed: the new leaders begin with a high watermark of 0,
    and load everything nevertheless. No committed offset goes back (the offsets watcher), and no transactional id gets
    the producer id of another one.
    """
    names = [f"id-{number}" for number in range(6)]

    async def script(stage: Stage) -> None:
        before = await stage.on_wire(partial(identities, names))
        for number in REPLICAS:
            stage.broker(number).hold()
            stage.broker(number).kill()
        for number in REPLICAS:
            machine = stage.broker(number)
            for directory in machine.directories:
                if machine.storage.find(f"{directory}{HIGH_WATERMARK_CHECKPOINT}") is not None:
                    machine.storage.remove(f"{directory}{HIGH_WATERMARK_CHECKPOINT}")
            machine.let_start()
        await stage.until(lambda: all(stage.broker(number).is_serving for number in REPLICAS), "all serve again")
        after = await stage.on_wire(partial(identities, names))
        for name in names:
            assert after[name].producer_id == before[name].producer_id
            assert after[name].epoch > before[name].epoch
        assert len({identity.producer_id for identity in after.values()}) == len(names)

    play(script, workloads=["payer-1", "offsets-watcher"], seconds=15.0)


def test_c28_a_session_ends_while_its_broker_becomes_the_leader_of_many() -> None:
    """Fifty coordinators move to other brokers, and one of these brokers loses its session at that moment; in the end
    each coordinator is loaded somewhere, with its transactional ids.
    """
    names = [f"id-{number}" for number in range(50)]

    async def script(stage: Stage) -> None:
        before = await stage.on_wire(partial(identities, names))
        victim = stage.state(TRANSACTIONS).leader
        stage.broker(victim).hold()
        stage.broker(victim).kill()
        led = [
            await stage.until_led(TRANSACTIONS, index, but_by=victim)
            for index in range(50)
            if stage.state(TRANSACTIONS, index).leader == victim
        ]
        successor = stage.broker(led[0])
        assert successor.broker is not None
        stage.world.store.end_session(successor.broker.parts.storage.store.session_id, "ended by the test")
        after = await stage.on_wire(partial(identities, names))
        assert {name: after[name].producer_id for name in names} == {name: before[name].producer_id for name in names}
        assert all(after[name].epoch > before[name].epoch for name in names)
        stage.broker(victim).let_start()

    play(script, settings={"transaction.state.log.num.partitions": "50"}, seconds=60.0)


async def identities(names: list[str], wire: Wire) -> dict[str, ProducerIdAndEpoch]:
    """Return the producer id and epoch that each transactional id gets now."""
    found = {}
    for name in names:
        told, found[name] = await wire.until_decided(partial(wire.init, name, TIMEOUT_MS), code, BUSY)
        assert told is ErrorCode.NONE
    return found


def test_c2_a_duplicate_is_not_taken_for_written_before_it_is() -> None:
    """The leader has batches that the followers lack. Some of these batches are sent again, one of which the log no
    longer remembers because newer batches followed; then this leader dies.
    """

    async def script(stage: Stage) -> None:
        await stage.topic("lines")
        place = Place("lines")
        leader = await stage.until_led("lines")

        async def send(first: Wire) -> None:
            async with Wire(stage.world.bootstrap_servers) as again:
                await again.follow(["lines"])
                _, writer = await first.new_producer_id()
                sends, batches = records_of(stage, place, writer, IN_FLIGHT + 1)
                note(stage, sends[0], await first.produce(place, batches[0], None, V1_PRODUCE))
                cut_followers(stage, leader)
                waiting = [asyncio.create_task(first.produce(place, each, None, V1_PRODUCE)) for each in batches[1:]]
                await stage.until(lambda: stage.log_end(leader, "lines") == len(batches), "the leader has all of them")
                copies = [asyncio.create_task(again.produce(place, batches[at], None, V1_PRODUCE)) for at in (1, -1)]
                await asyncio.sleep(0.5)
                assert not any(each.done() for each in (*waiting, *copies)), "only the leader has the batches"
                stage.broker(leader).hold()
                stage.broker(leader).kill()
                for each in (*waiting, *copies):
                    with pytest.raises((ConnectionFailed, KafkaError)):
                        await each
                stage.world.network.mend_all()
                await stage.until_led("lines", but_by=leader)
                for sent, batch in zip(sends[1:], batches[1:], strict=True):
                    note(
                        stage,
                        sent,
                        await first.until_decided(partial(first.produce, place, batch, None, V1_PRODUCE), code),
                    )
            stage.broker(leader).let_start()

        await stage.on_wire(send, "lines")

    play(script)


def test_c15_a_leader_is_cut_off_from_its_followers() -> None:
    """The leader leads, and reaches the metadata store and the controller. It can nevertheless neither acknowledge
    records that only it has nor return them to consumers.
    """

    async def script(stage: Stage) -> None:
        leader = stage.controller
        await stage.topic("lines", (leader, *stage.others(leader)))
        place = Place("lines")

        async def send(wire: Wire) -> None:
            _, writer = await wire.new_producer_id()
            sends, batches = records_of(stage, place, writer, 3)
            note(stage, sends[0], await wire.produce(place, batches[0], None, V1_PRODUCE))
            cut_followers(stage, leader)
            told = await wire.produce(place, batches[1], None, V1_PRODUCE)
            assert told.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            await stage.until_isr("lines", {leader})
            told = await wire.produce(place, batches[2], None, V1_PRODUCE)
            assert told.code is ErrorCode.NOT_ENOUGH_REPLICAS
            replica = stage.replica(leader, "lines")
            assert replica is not None
            assert (replica.leads, replica.high_watermark, replica.log.log_end_offset) == (True, 1, 2)
            stage.world.network.mend_all()
            await stage.until_isr("lines", set(REPLICAS))
            for sent, batch in zip(sends[1:], batches[1:], strict=True):
                note(stage, sent, await wire.produce(place, batch, None, V1_PRODUCE))

        await stage.on_wire(send, "lines")

    play(script, settings={"replica.lag.time.max.ms": "1500"})


def test_c3_a_marker_held_only_by_the_leader_is_not_acknowledged() -> None:
    """The coordinator does not consider the marker written, and sends the marker to the next leader, so the following
    transaction is separate.
    """

    async def script(stage: Stage) -> None:
        await stage.topic("lines")
        place = Place("lines")
        leader = await stage.until_led("lines")
        name, coordinator = await coordinated_by_another(stage, leader)
        (third,) = stage.others(leader, coordinator)

        async def send(wire: Wire) -> None:
            _, writer = await wire.until_decided(partial(wire.init, name, TIMEOUT_MS), code, BUSY)
            for number, commits in enumerate((True, False, True)):
                transaction = stage.history.transaction(name)
                sent = stage.history.send(name, place, f"{name}/{number}".encode(), transaction)
                batch = one_record(sent.value, writer, 0, now_ms(), is_transactional=True)
                produce = partial(wire.produce, place, batch, name, V2_PRODUCE)
                note(stage, sent, await wire.until_decided(produce, code, BUSY))
                if number == 0:  # one follower fetches nothing, so that no high watermark moves
                    stage.world.network.cut(f"broker-{third}", f"broker-{leader}")
                end = stage.log_end(leader, "lines")
                told, writer = await wire.until_decided(
                    partial(wire.end, name, writer, commits=commits, version=V2_END), code, BUSY
                )
                assert told is ErrorCode.NONE
                stage.history.ended(transaction, End.COMMITTED if commits else End.ABORTED)
                if number == 0:
                    await stage.until(lambda: stage.log_end(leader, "lines") > end, "the leader has the marker")  # noqa: B023
                    stage.broker(leader).hold()
                    stage.broker(leader).kill()
                    stage.world.network.mend_all()

        await stage.on_wire(send, "lines")
        stage.broker(leader).let_start()
        await stage.until_isr("lines", set(REPLICAS))
        replica = stage.replica(await stage.until_led("lines"), "lines")
        assert replica is not None
        await stage.until(lambda: replica.last_stable_offset == replica.log.log_end_offset, "no transaction is open")
        assert replica.log.log_end_offset == 6, "three records and three markers"

    play(script)


async def coordinated_by_another(stage: Stage, number: int) -> tuple[str, int]:
    """Return a transactional id, and its coordinator, which is not this broker."""
    await stage.on_wire(partial(identities, ["any"]))  # creates the topic of transactions
    runtime = next(
        machine.broker.parts.coordinators.transactions.runtime
        for machine in stage.world.brokers.values()
        if machine.broker is not None
    )
    return next((name, at) for name in map("id-{}".format, range(100)) if (at := runtime.leader_of(name)) != number)


def cut_followers(stage: Stage, leader: int) -> None:
    """Lose the packets of all followers to the leader; the leader's packets arrive."""
    for other in stage.others(leader):
        stage.world.network.cut(f"broker-{other}", f"broker-{leader}")


def records_of(stage: Stage, place: Place, writer: ProducerIdAndEpoch, count: int) -> tuple[list[Send], list[bytes]]:
    """Return batches of one record each of an idempotent producer, and their entries in the history."""
    sends = [stage.history.send("raw", place, b"raw/%d" % sequence) for sequence in range(count)]
    batches = [
        one_record(send.value, writer, sequence, now_ms(), is_transactional=False)
        for sequence, send in enumerate(sends)
    ]
    return sends, batches


def note(stage: Stage, send: Send, answer: Answered) -> None:
    """Record that a broker has accepted the record."""
    assert answer.code is ErrorCode.NONE
    stage.history.acknowledged(send, answer.offset)
