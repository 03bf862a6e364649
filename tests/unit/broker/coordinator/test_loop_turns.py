"""A coordinator never blocks the event loop, even if ten thousand sessions end or begin simultaneously (S87)."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, pairwise
from typing import Any

import pytest
from tests.support.counters import TOPIC, Counters, failed, loaded, wait_for_ever
from tests.support.loop_turns import Turns, shortest, turns

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.records import group_record
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_broker.coordinator.runtime import REPLIES_PER_TURN, CoordinatorRuntime
from oncelog_broker.runtime.clock import ManualClock, SystemClock
from oncelog_broker.runtime.garbage import keep_collections_short
from oncelog_broker.runtime.slices import Slices
from oncelog_protocol.coordinator_records.consumer_offsets import GroupMetadataValue
from oncelog_protocol.errors import ErrorCode

MAX_TURN_SECONDS = 0.01
SESSION_SECONDS = 30
GROUPS = [3000, pytest.param(10_000, marks=pytest.mark.soak)]


@pytest.fixture(autouse=True)
def as_in_a_broker() -> Iterator[None]:
    """Configure Python's garbage collector as a broker does, so that each collection is short."""
    undo = keep_collections_short()
    yield
    undo()


def logged_group(group_id: str) -> Any:
    member = GroupMetadataValue.MemberMetadata(
        member_id=f"m-{group_id}",
        group_instance_id=None,
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout=SESSION_SECONDS * 1000,
        session_timeout=SESSION_SECONDS * 1000,
        subscription=b"",
        assignment=b"",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=member.member_id,
        current_state_timestamp=0,
        members=[member],
    )
    return group_record(group_id, value)


def group_runtime(topic: Any) -> CoordinatorRuntime[GroupMachine]:
    """Create a runtime whose slices follow the real clock and whose sessions follow the test's clock."""
    ids = count()

    def machine(index: int) -> GroupMachine:
        return GroupMachine(GroupConfig(), topic.clock.now_ms, lambda: str(next(ids)))

    return CoordinatorRuntime(TOPIC, machine, topic, replace(topic.host, slices=Slices(SystemClock(), topic.tasks)))


@pytest.mark.parametrize("groups", GROUPS)
async def test_s87_simultaneous_session_ends_let_other_work_run(internal_topics, groups):
    """All clients were disconnected. The coordinator role has moved to this broker, so all sessions began at the same
    moment.
    """
    longest = await shortest(lambda: longest_turn_while_sessions_end(next(internal_topics), groups), MAX_TURN_SECONDS)
    assert longest < MAX_TURN_SECONDS


async def longest_turn_while_sessions_end(internal_topic: Any, groups: int) -> float:
    """Return the CPU seconds of the longest turn while `groups` groups are loaded and all of their sessions end."""
    runtime = group_runtime(internal_topic)
    runtime.on_image(internal_topic.lead())
    shard = runtime.loaded_shard(0)
    for number in range(groups):
        effects = Effects()
        effects.append(logged_group(f"g{number}"))
        runtime.step(shard, lambda machine, effects=effects: effects)
    runtime.on_image(internal_topic.resign())
    gc.freeze()

    loading = Turns()
    runtime.on_image(internal_topic.lead())
    shard = next(iter(runtime.all_shards()))
    await loading.until(lambda: shard.is_loaded and len(shard.timers) == groups)

    loop = Turns()
    internal_topic.clock.advance_ms(SESSION_SECONDS * 1000)
    before = time.thread_time()
    runtime.wakes.fire_due()
    first = time.thread_time() - before
    await loop.until(lambda: len(shard.timers) == 0)
    assert loop.count > groups // 1000
    assert {group.state for group in shard.machine.groups.values()} == {GroupState.EMPTY}
    await internal_topic.tasks.close()
    return max(loading.longest, first, loop.longest)


async def test_s87_a_heartbeat_between_two_slices_counts(internal_topic):
    """A session whose timer is due but has not fired continues if its member sends a heartbeat."""
    runtime = CoordinatorRuntime(
        TOPIC,
        Counters,
        internal_topic,
        replace(internal_topic.host, slices=Slices(Ticking(), internal_topic.tasks)),
    )
    runtime.on_image(internal_topic.lead())
    shard = runtime.loaded_shard(0)
    for name in "abc":
        shard.timers.set(name, 1.0)
    internal_topic.clock.advance_ms(1000)
    runtime.wakes.fire_due()
    fired = shard.machine.fired
    assert fired == ["a"]
    shard.timers.set("c", 5.0)
    runtime.wakes.fire_due()  # the runtime is woken again before the first wake-up has run
    await turns(50)
    assert fired == ["a", "b"]
    internal_topic.advance(4.0)
    assert fired == ["a", "b", "c"]


class Ticking(ManualClock):
    """A clock that advances by a second at each reading, so that each slice has one step."""

    def monotonic(self) -> float:
        self.advance_ms(1000)
        return super().monotonic()


async def test_s87_timers_stop_firing_where_the_coordinator_moves_between_two_slices(internal_topic):
    runtime = CoordinatorRuntime(
        TOPIC,
        Counters,
        internal_topic,
        replace(internal_topic.host, slices=Slices(Ticking(), internal_topic.tasks)),
    )
    runtime.on_image(internal_topic.lead())
    shard = runtime.loaded_shard(0)
    for name in "abc":
        shard.timers.set(name, 1.0)
    internal_topic.clock.advance_ms(1000)
    runtime.wakes.fire_due()
    runtime.on_image(internal_topic.resign())
    await turns(50)
    assert shard.machine.fired == ["a"]
    runtime.on_image(internal_topic.lead())
    await loaded(runtime)
    again = runtime.loaded_shard(0)
    again.timers.set("d", 2.0)
    internal_topic.clock.advance_ms(1000)
    runtime.wakes.fire_due()
    assert again.machine.fired == ["d"]


async def test_s87_answers_of_one_step_leave_in_several_turns(runtime, internal_topic):
    """One turn of the loop encodes only few responses, so that a thousand joining members do not block the loop."""
    runtime.on_image(internal_topic.lead())
    answers = [runtime.write("a", wait_for_ever, failed) for _ in range(3 * REPLIES_PER_TURN)]
    runtime.on_image(internal_topic.resign())
    counts = []
    while not all(answer.done() for answer in answers):
        counts.append(sum(answer.done() for answer in answers))
        await asyncio.sleep(0)
    assert counts[0] == REPLIES_PER_TURN
    assert max(after - before for before, after in pairwise(counts)) <= REPLIES_PER_TURN
    assert {answer.result() for answer in answers} == {ErrorCode.NOT_COORDINATOR}
