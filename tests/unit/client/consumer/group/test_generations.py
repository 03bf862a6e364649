"""A commit is sent with the group generation in which it was requested, even if it is sent much later (S88)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.fake_group import PLACES, Coordinator
from tests.support.group_consumers import Listener, consumer_of, poll_until

from oncelog.consumer.consumer import Consumer
from oncelog.errors import CommitFailed
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.heartbeat import HeartbeatRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

pytestmark = pytest.mark.virtual_time

KEPT, GIVEN_UP = PLACES
HANDED_OVER = {
    "sticky": ["assigned 2", "revoked 2", "assigned 1"],
    "cooperative-sticky": ["assigned 2", "revoked 1", "assigned 0", "assigned 0"],
}
"""The listener's calls until another member has one of the two partitions."""


@pytest.fixture
def records(fake_broker: Any) -> None:
    for place in PLACES:
        fake_broker.append(build_batch([Record(n, 1, None, b"v", []) for n in range(3)]), *place)


async def read_all(consumer: Consumer, listener: Listener) -> None:
    await poll_until(consumer, listener, "assigned 2")
    while [await consumer.position(place) for place in PLACES] != [3, 3]:
        await consumer.poll(10)


async def rebalanced(consumer: Consumer, listener: Listener, coordinator: Coordinator, strategy: str) -> None:
    coordinator.assigned = (KEPT,)
    coordinator.errors[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
    await poll_until(consumer, listener, *HANDED_OVER[strategy])


@pytest.mark.usefixtures("records")
@pytest.mark.parametrize("waits_for", ["the coordinator", "an earlier commit"])
@pytest.mark.parametrize("strategy", list(HANDED_OVER))
async def test_s88_a_commit_that_waited_over_a_rebalance_is_not_stored_where_others_read(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int], strategy: str, waits_for: str
) -> None:
    listener = Listener()
    options = {"enable_auto_commit": False, "partition_assignment_strategy": [strategy]}
    async with consumer_of(fake_broker, fast, **options) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await read_all(consumer, listener)
        coordinator.errors[OffsetCommitRequest] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 10_000
        if waits_for == "an earlier commit":
            earlier = asyncio.ensure_future(consumer.commit({KEPT: 1}))
        committing = asyncio.ensure_future(consumer.commit())
        await fake_broker.received(OffsetCommitRequest)
        await rebalanced(consumer, listener, coordinator, strategy)
        coordinator.errors[OffsetCommitRequest] = []
        with pytest.raises(CommitFailed, match=f"not stored for .*{GIVEN_UP}"):
            await committing
        if waits_for == "an earlier commit":
            await asyncio.gather(earlier, return_exceptions=True)
        assert coordinator.committed == ({KEPT: 3} if strategy == "cooperative-sticky" else {})
        await consumer.commit({KEPT: 2})  # a commit requested now belongs to this generation
        assert coordinator.committed == {KEPT: 2}


@pytest.mark.usefixtures("records")
async def test_s88_a_returned_partition_has_a_new_position(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    """The partition was revoked, and another member may have read further before the partition was assigned to this
    member again.
    """
    listener = Listener()
    options = {"enable_auto_commit": False, "partition_assignment_strategy": ["cooperative-sticky"]}
    async with consumer_of(fake_broker, fast, **options) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await read_all(consumer, listener)
        coordinator.errors[OffsetCommitRequest] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 10_000
        committing = asyncio.ensure_future(consumer.commit())
        await fake_broker.received(OffsetCommitRequest)
        await rebalanced(consumer, listener, coordinator, "cooperative-sticky")
        coordinator.assigned = PLACES
        coordinator.errors[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
        await poll_until(consumer, listener, *HANDED_OVER["cooperative-sticky"], "assigned 1")
        coordinator.errors[OffsetCommitRequest] = []
        with pytest.raises(CommitFailed, match=f"not stored for {GIVEN_UP}"):
            await committing
        assert coordinator.committed == {KEPT: 3}


@pytest.mark.usefixtures("records")
async def test_s88_an_automatic_commit_ends_with_the_generation_that_was_lost(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    """The member was fenced and has rejoined before the commit is retried."""
    listener = Listener()
    slow = {"retry_backoff_ms": 2_000, "retry_backoff_max_ms": 2_000, "auto_commit_interval_ms": 1_000}
    async with consumer_of(fake_broker, fast, **slow) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await read_all(consumer, listener)
        coordinator.errors[OffsetCommitRequest] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        while not fake_broker.requests_of(OffsetCommitRequest):
            await consumer.poll(100)
        coordinator.errors[HeartbeatRequest] = [ErrorCode.UNKNOWN_MEMBER_ID]
        await poll_until(consumer, listener, "assigned 2", "lost 2", "assigned 2")
        consumer.pause(*PLACES)
        await asyncio.sleep(5)
        assert coordinator.committed == {}
