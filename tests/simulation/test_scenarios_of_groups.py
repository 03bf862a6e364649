"""Scenarios of coordinators, clocks and the cleaner, step by step, in the simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

import pytest
from tests.simulation.stage import REPLICAS, Stage, play

from oncelog import Producer
from oncelog.clock import now_ms
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.records.batch import batches
from oncelog_simulation.workloads.groups import GROUP, MIXED_GROUP, NEWER_GROUP
from oncelog_simulation.workloads.wire import BUSY, V2_END, V2_PRODUCE, Wire, code, one_record
from oncelog_simulation.workloads.workload import COMMON
from oncelog_simulation.workloads.writers import LINES
from oncelog_testing.history.events import End, Place

SHARE_STATE = "__share_group_state"
HOUR_MS = 3_600_000
SHORT_MS, LONG_MS = 1_000, 600_000
MEMBERS = ("member", "newer-member", "mixed-member")


def test_c29_the_coordinator_of_a_group_is_killed() -> None:
    """A group of the classic protocol, a group of the consumer protocol, and a group with members of both lose their
    coordinators, one after the other, while members join and leave. No committed offset goes back, no removed member's
    commit is accepted, and every record is read (the judge of the history and the members themselves).
    """
    groups = [(f"{kind}-1", f"{kind}-2") for kind in MEMBERS]

    async def script(stage: Stage) -> None:
        for group in (GROUP, NEWER_GROUP, MIXED_GROUP):
            await steps(stage, *groups)
            coordinator = stage.broker(coordinator_of(stage, group))
            coordinator.hold()
            coordinator.kill()
            await asyncio.sleep(1.0)
            coordinator.let_start()
        await steps(stage, *groups)

    play(script, workloads=["writer-1", *chain(*groups), "offsets-watcher"], seconds=25.0, pace=2.0)


def coordinator_of(stage: Stage, group: str) -> int:
    """Return the broker that coordinates the group, as the running brokers see it."""
    return next(
        machine.broker.parts.coordinators.groups.runtime.leader_of(group)
        for machine in stage.world.brokers.values()
        if machine.broker is not None
    )


async def steps(stage: Stage, *groups: Sequence[str]) -> None:
    """Wait until a member of each group has made another step."""

    def done(members: Sequence[str]) -> int:
        return sum(stage.notes.steps(member) for member in members)

    goals = [done(members) + 1 for members in groups]
    await stage.until(lambda: all(done(each) >= goal for each, goal in zip(groups, goals, strict=True)), "all go on")


def test_share_leader_and_share_coordinator_are_killed() -> None:
    """Members of a share group acknowledge while the leader of a share partition, and then its share coordinator, are
    killed: no record is lost or accepted twice (the judges `shared` and `share locks`).
    """
    members = ("sharer-1", "sharer-2")

    async def script(stage: Stage) -> None:
        for topic in (LINES, SHARE_STATE):
            await steps(stage, members)
            leader = await stage.until_led(topic)
            stage.broker(leader).hold()
            stage.broker(leader).kill()
            await stage.until_led(topic, but_by=leader)
            stage.broker(leader).let_start()
        await steps(stage, members)

    play(script, workloads=["writer-1", *members], seconds=25.0, pace=2.0)


@pytest.mark.parametrize("hours", [-2, 1])
def test_c25_a_clock_jumps(hours: int) -> None:
    """The wall clocks of all brokers jump, and jump back, while a transaction is open and a group works: nothing that
    has time left expires, as the end of another transaction shows, whose timeout has passed.
    """

    async def script(stage: Stage) -> None:
        place = Place("clocked")
        await stage.topic("clocked", message_timestamp_after_max_ms=str(2**63 - 1))

        async def work(wire: Wire) -> None:
            for jump in (hours * HOUR_MS, -hours * HOUR_MS):
                long, short = await begun(stage, wire, place, LONG_MS), await begun(stage, wire, place, SHORT_MS)
                for machine in stage.world.brokers.values():
                    machine.clock.step_wall_ms(jump)
                await asyncio.sleep(3 * SHORT_MS / 1000)
                assert await long(True) is ErrorCode.NONE
                assert await short(True) is not ErrorCode.NONE

        await stage.on_wire(work, "clocked")

    play(script, workloads=["writer-1", "member-1", "newer-member-1", "offsets-watcher"], seconds=20.0)


async def begun(stage: Stage, wire: Wire, place: Place, timeout_ms: int) -> Callable[[bool], object]:
    """Begin a transaction with one record; returns a function that ends it."""
    name = f"timeout-{timeout_ms}"
    told, writer = await wire.until_decided(partial(wire.init, name, timeout_ms), code, BUSY)
    assert told is ErrorCode.NONE
    transaction = stage.history.transaction(name)
    send = stage.history.send(name, place, f"{name}/{now_ms()}".encode(), transaction)
    batch = one_record(send.value, writer, 0, now_ms(), is_transactional=True)
    answer = await wire.until_decided(partial(wire.produce, place, batch, name, V2_PRODUCE), code, BUSY)
    assert answer.code is ErrorCode.NONE
    stage.history.acknowledged(send, answer.offset)

    async def end(commits: bool) -> ErrorCode:
        ask = partial(wire.end, name, writer, commits=commits, version=V2_END)
        told, _ = await wire.until_decided(ask, code, BUSY)
        stage.history.ended(transaction, End.ABORTED if told or not commits else End.COMMITTED)
        return told

    return end


def test_s56_an_abort_is_kept_for_a_replica_that_is_away() -> None:
    """A broker dies with a record of a transaction that is then aborted, and is down for longer than markers are kept.
    When the broker is back, it gets the marker; only then the marker is removed.
    """
    configs = {"cleanup_policy": "compact", "delete_retention_ms": "0", "min_cleanable_dirty_ratio": "0"}

    async def script(stage: Stage) -> None:
        await stage.topic("table", (1, 2, 3), segment_bytes="100", segment_index_bytes="1024", **configs)
        del stage.notes.topics["table"]  # its records are not in the history
        leader = await stage.until_led("table")
        away, other = stage.others(leader)

        async def abort() -> None:
            async with Producer(
                stage.world.bootstrap_servers, **COMMON, transactional_id="table", transaction_timeout_ms=LONG_MS
            ) as producer:
                producer.begin_transaction()
                await producer.send_and_wait("table", b"aborted", key=b"key")
                stage.broker(away).hold()
                stage.broker(away).kill()
                await producer.abort_transaction()

        async def fill() -> None:
            async with Producer(stage.world.bootstrap_servers, **COMMON) as producer:
                for number in range(2):
                    await producer.send_and_wait("table", b"filler", key=b"%d %f" % (number, stage.world.now))

        await stage.call("anna", abort)
        await stage.until(lambda: away not in stage.state("table").isr, "it is known to be away")
        for _ in range(5):
            await stage.call("paul", fill)
            await asyncio.sleep(2.0)  # the cleaner runs every half second
            assert has_marker(stage, leader)
            assert has_marker(stage, other)
        stage.broker(away).let_start()
        await stage.until_isr("table", set(REPLICAS))
        for _ in range(10):
            await stage.call("paul", fill)
            await asyncio.sleep(2.0)
        assert not has_marker(stage, leader)
        replica = stage.replica(away, "table")
        assert replica is not None
        assert replica.log.producer_state.open_transactions == 0

    play(script, seconds=90.0)


def has_marker(stage: Stage, number: int) -> bool:
    """Return whether the log has a transaction marker with its control record; a batch header without the record, which
    is kept for the producer's state, ends no transaction.
    """
    replica = stage.replica(number, "table")
    assert replica is not None
    log = replica.log
    view = log.reader.read(log.log_start_offset, 1 << 20, upper_bound=log.log_end_offset, min_one_batch=True)
    return any(batch.is_control and batch.records_count for batch in batches(bytes(view)))
