"""Share partitions of a broker: where they start, when they are loaded, and when they are dropped."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.share_world import ShareWorld, turns

from oncelog_broker.coordinator.share.share_state_machine import StateWrite
from oncelog_broker.coordinator.share.state_batches import DeliveryState, StateBatch
from oncelog_broker.runtime.answers import settled
from oncelog_broker.sharing.hosted_share_partition import HostedSharePartition
from oncelog_broker.sharing.share_partitions import IDLE_SECONDS
from oncelog_protocol.errors import ErrorCode, KafkaError


async def found(world: ShareWorld, index: int = 0) -> HostedSharePartition | KafkaError:
    return await settled(world.shares.find(world.key(index), world.partitions[index]))


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("latest", 3), ("earliest", 0), ("by_duration:PT10S", 1), ("by_duration:PT1S", 3), ("by_duration:P1D", 0)],
)
async def test_a_state_without_a_start_offset_begins_by_the_reset_and_the_next_leader_there_too(
    world: ShareWorld, strategy: str, expected: int
) -> None:
    for age_seconds in (20, 10, 5):
        world.append(b"a", timestamp=world.clock.now_ms() - 1000 * age_seconds)
    world.calls.begin(world.key(), state_epoch=2, start=-1)
    world.set("share.auto.offset.reset", strategy)
    hosted = await found(world)
    assert isinstance(hosted, HostedSharePartition)
    assert hosted.share.start_offset == expected
    assert world.calls.machine.states[world.key()].start_offset == expected
    world.append(b"later")
    world.partitions[0].resign()
    world.partitions[0].lead(4, (1,))
    again = await found(world)
    assert isinstance(again, HostedSharePartition)
    assert again.share.start_offset == expected, "it would be another one by the reset"


@pytest.mark.parametrize("strategy", ["latest", "by_duration:PT1S"])
async def test_a_new_leader_resets_no_offset_before_its_high_watermark_has_caught_up(
    world: ShareWorld, strategy: str
) -> None:
    partition = world.partitions[0]
    partition.lead(4, (1, 2))
    world.append(b"a", timestamp=world.clock.now_ms() - 10_000)
    partition.resign()
    partition.lead(5, (1, 2))
    assert not partition.high_watermark_caught_up
    world.calls.begin(world.key(), state_epoch=2, start=-1)
    world.set("share.auto.offset.reset", strategy)
    error = await found(world)
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.resign()
    partition.lead(6, (1,))
    hosted = await found(world)
    assert isinstance(hosted, HostedSharePartition)
    assert hosted.share.start_offset == 1


async def test_a_start_offset_that_cannot_be_kept_is_no_start(world: ShareWorld) -> None:
    world.calls.begin(world.key(), state_epoch=2, start=-1)
    world.calls.errors = [KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    error = await found(world)
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert isinstance(await found(world), HostedSharePartition)


async def test_requests_share_one_load(world: ShareWorld) -> None:
    first = world.shares.find(world.key(), world.partitions[0])
    second = world.shares.find(world.key(), world.partitions[0])
    assert await settled(first) is await settled(second)
    assert world.shares.find(world.key(), world.partitions[0]) is await settled(first), "it is there"


async def test_a_new_leader_epoch_loads_the_state_anew(world: ShareWorld) -> None:
    before = await found(world)
    world.partitions[0].lead(4, (1,))
    assert world.shares.loaded(world.key()) is None
    after = await found(world)
    assert after is not before
    assert isinstance(before, HostedSharePartition)
    assert before.is_dropped
    assert world.calls.machine.states[world.key()].leader_epoch == 4


async def test_what_nobody_uses_is_dropped_but_not_while_a_member_has_records(world: ShareWorld) -> None:
    world.append(b"a")
    world.set("share.record.lock.duration.ms", "60000")
    member = world.member()
    await member.fetch(partitions=(0, 1))
    world.clock.advance_ms(int(IDLE_SECONDS + 1) * 1000)
    await world.shares.sweep()
    assert [hosted.key.partition for hosted in world.shares.all()] == [0]
    world.advance(1.0)
    await turns()
    world.clock.advance_ms(int(IDLE_SECONDS + 1) * 1000)
    await world.shares.sweep()
    assert list(world.shares.all()) == []


async def test_a_share_partition_beyond_the_end_of_a_truncated_log_goes_on_at_the_end(world: ShareWorld) -> None:
    world.calls.begin(world.key(), state_epoch=2, start=50)
    world.append(b"a")
    hosted = await found(world)
    assert isinstance(hosted, HostedSharePartition)
    assert hosted.share.start_offset == 1
    assert world.calls.machine.states[world.key()].start_offset == 1
    world.append(*[b"b"] * 60)
    world.partitions[0].lead(4, (1,))
    assert await world.member().acquired() == [(1, 60, 1)], "the next leader does not begin at 50"


async def test_records_that_get_the_offsets_of_lost_ones_are_delivered(world: ShareWorld) -> None:
    """The state that was stored for records beyond the end of a truncated log does not apply to the records that
    replace them.
    """
    world.append(b"a")
    await world.calls.read(world.key(), 3)
    lost = StateBatch(0, 4, DeliveryState.ACKNOWLEDGED, 1)
    assert await world.calls.write(world.key(), StateWrite(1, 3, 0, 5, (lost,))) is None
    assert isinstance(await found(world), HostedSharePartition)
    state = world.calls.machine.states[world.key()]
    assert (state.start_offset, state.batches) == (1, (StateBatch(1, 4, DeliveryState.AVAILABLE, 0),))
    world.append(b"b", b"c")
    world.partitions[0].lead(4, (1,))
    assert await world.member().acquired() == [(1, 2, 1)]


async def test_deleted_records_are_skipped(world: ShareWorld) -> None:
    for _ in range(3):
        world.append(b"a")
    member = world.member()
    await member.fetch()
    world.partitions[0].log.trimmer.delete_records_before(2)
    assert await world.member("m2").acquired() == []
    assert await member.accept(0, 2) is ErrorCode.NONE
    assert world.calls.machine.states[world.key()].start_offset == 3


async def test_changed_settings_hold_at_once(world: ShareWorld) -> None:
    assert world.shares.settings_of("g").delivery_limit == 5
    world.set("share.delivery.count.limit", "2")
    assert world.shares.settings_of("g").delivery_limit == 2


async def test_a_lock_that_runs_out_is_kept_with_the_count_of_deliveries(world: ShareWorld) -> None:
    world.append(b"a")
    await world.member().fetch()
    world.advance(30.0)
    assert await world.member("m2").acquired() == [(0, 0, 2)]
    await turns()
    (batch,) = world.calls.machine.states[world.key()].batches
    assert batch.deliveries == 1


async def begin_anew(world: ShareWorld, start: int) -> None:
    """Set the start offset as an administrator does for a group without members."""
    world.calls.begin(world.key(), state_epoch=7, start=start)


async def test_a_state_that_began_anew_after_the_last_session_is_read_by_the_next_one(world: ShareWorld) -> None:
    for _ in range(3):
        world.append(b"a")
    member = world.member()
    assert await member.acquired() == [(0, 2, 1)]
    assert await member.accept(0, 2) is ErrorCode.NONE
    member.disconnect()
    await begin_anew(world, start=1)
    assert await world.member("m2").acquired() == [(1, 2, 1)]


async def test_a_state_stays_while_another_session_of_the_group_is_open(world: ShareWorld) -> None:
    world.append(b"a")
    first, second = world.member(), world.member("m2")
    await first.fetch()
    await second.fetch()
    before = world.shares.loaded(world.key())
    first.disconnect()
    assert world.shares.loaded(world.key()) is before
    second.disconnect()
    await turns()
    assert world.shares.loaded(world.key()) is None


async def test_the_next_session_waits_until_what_the_last_one_released_is_kept(world: ShareWorld) -> None:
    world.append(b"a")
    member = world.member()
    await member.fetch()
    world.calls.held = asyncio.Event()
    member.disconnect()
    fetch = asyncio.ensure_future(world.member("m2").acquired())
    await turns()
    assert not fetch.done()
    world.calls.held.set()
    assert await fetch == [(0, 0, 2)]


async def test_what_was_read_before_the_last_session_ended_is_not_used(world: ShareWorld) -> None:
    world.append(b"a", b"b")
    world.calls.held_reads = asyncio.Event()
    member = world.member()
    fetch = asyncio.ensure_future(member.fetch())
    await turns()
    member.disconnect()
    await begin_anew(world, start=1)
    world.calls.held_reads.set()
    await fetch
    assert list(world.shares.all()) == []
    assert await world.member("m2").acquired() == [(1, 1, 1)]
