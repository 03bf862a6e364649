"""A member that leaves its group in the middle of any operation neither rejoins nor reads records afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest
from tests.support.fake_group import PLACES, Coordinator
from tests.support.group_consumers import Listener, consumer_of, poll_until

from oncelog.cluster import TopicPartition
from oncelog.errors import ClientClosed
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.heartbeat import HeartbeatRequest
from oncelog_protocol.messages.join_group import JoinGroupRequest
from oncelog_protocol.messages.leave_group import LeaveGroupRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record


async def test_closing_does_not_wait_for_a_coordinator_that_is_gone(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    listener = Listener()
    consumer = consumer_of(fake_broker, fast)
    await consumer.start()
    consumer.subscribe(["topic"], listener=listener)
    await poll_until(consumer, listener, "assigned 2")
    await fake_broker.stop()
    async with asyncio.timeout(5):
        await consumer.close(timeout_ms=50)
    assert listener.calls == ["assigned 2", "revoked 2"]


async def test_a_close_that_is_cancelled_still_closes(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    listener = Listener()
    consumer = consumer_of(fake_broker, fast)
    await consumer.start()
    consumer.subscribe(["topic"], listener=listener)
    await poll_until(consumer, listener, "assigned 2")
    listener.trouble["revoked"] = asyncio.CancelledError()
    with pytest.raises(asyncio.CancelledError):
        await consumer.close()
    await consumer.close()
    assert len(asyncio.all_tasks()) <= 2 + fake_broker.connections


@pytest.mark.parametrize("where", ["commit", "callback"])
async def test_a_cancelled_unsubscribe_stops_reading_foreign_partitions(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int], where: str
) -> None:
    """The member has left the group, so it must stop reading, because other members now read the same partitions."""
    for _ in range(5):
        fake_broker.append(build_batch([Record(0, 1, None, b"v", [])]))
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        while not await consumer.poll(10, max_records=1):
            pass
        if where == "commit":
            answered = asyncio.Event()

            async def commit(request: Any) -> Any:
                await answered.wait()
                return coordinator.OffsetCommitRequest(request)

            fake_broker.handlers[OffsetCommitRequest] = commit
            leaving = asyncio.ensure_future(consumer.unsubscribe())
            await fake_broker.received(OffsetCommitRequest)
            leaving.cancel()
            answered.set()
        else:
            listener.trouble["revoked"] = asyncio.CancelledError()
            leaving = asyncio.ensure_future(consumer.unsubscribe())
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await fake_broker.received(LeaveGroupRequest)
        assert consumer.assignment() == set()
        with pytest.raises(ValueError, match="nothing is subscribed"):
            await consumer.poll(10)
        joined = len(fake_broker.requests_of(JoinGroupRequest))
        consumer.subscribe(["topic"], listener=listener)
        del listener.calls[:]
        await poll_until(consumer, listener, "assigned 2")
        assert len(fake_broker.requests_of(JoinGroupRequest)) > joined


@pytest.mark.parametrize("leaves", ["unsubscribe", "close"])
async def test_s46_a_departed_member_hands_over_offsets_under_its_former_identity(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int], leaves: str
) -> None:
    """A transaction may end after its consumer has left. Its offsets must still contain the member's identity, because
    otherwise the coordinator would not check them.
    """
    listener = Listener()
    consumer = consumer_of(fake_broker, fast)
    await consumer.start()
    consumer.subscribe(["topic"], listener=listener)
    await poll_until(consumer, listener, "assigned 2")
    member = consumer.group_metadata()
    assert member == ("g", coordinator.generation, "me", None)
    await getattr(consumer, leaves)()
    assert consumer.group_metadata() == member
    if leaves == "unsubscribe":
        consumer.assign([PLACES[0]])
        assert consumer.group_metadata() == ("g", -1, "", None)
        await consumer.close()


async def test_a_leave_cancelled_during_a_join_has_taken_effect(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    """If the LeaveGroup request had no effect, the other members would wait until the leaving member's session ends."""
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")

        async def join(request: Any) -> Any:
            await asyncio.Event().wait()

        fake_broker.handlers[JoinGroupRequest] = join
        joined = len(fake_broker.requests_of(JoinGroupRequest))
        coordinator.errors[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
        while len(fake_broker.requests_of(JoinGroupRequest)) == joined:
            await consumer.poll(10)
        leaving = asyncio.ensure_future(consumer.unsubscribe())
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await fake_broker.received(LeaveGroupRequest)


async def test_a_callback_that_fails_while_unsubscribing_does_not_keep_the_subscription(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        listener.trouble["revoked"] = OSError("no disk")
        with pytest.raises(OSError, match="no disk"):
            await consumer.unsubscribe()
        consumer.assign([PLACES[0]])
        assert consumer.assignment() == {PLACES[0]}


class Holding(Listener):
    """A listener whose first revocation callback waits until the test lets it continue."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await super().on_revoked(partitions)
        if not self.entered.is_set():
            self.entered.set()
            await self.goes_on.wait()


@pytest.mark.virtual_time
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("leaves", ["close", "unsubscribe"])
async def test_a_member_leaving_during_a_revocation_neither_joins_nor_reads_again(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int], leaves: str, strategy: str
) -> None:
    listener = Holding()
    consumer = consumer_of(fake_broker, fast, partition_assignment_strategy=[strategy])
    await consumer.start()
    consumer.subscribe(["topic"], listener=listener)
    await poll_until(consumer, listener, "assigned 2")
    coordinator.assigned = (TopicPartition("topic", 2),)
    coordinator.errors[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
    polling = asyncio.ensure_future(consumer.poll(60_000))
    await listener.entered.wait()
    await getattr(consumer, leaves)()
    joined = len(fake_broker.requests_of(JoinGroupRequest))
    listener.goes_on.set()
    if leaves == "close":
        async with asyncio.timeout(5):
            with pytest.raises(ClientClosed):
                await polling
    else:
        await asyncio.sleep(1)
        polling.cancel()
    assert consumer.assignment() == set()
    assert len(fake_broker.requests_of(JoinGroupRequest)) == joined
    if leaves == "unsubscribe":
        await asyncio.gather(polling, return_exceptions=True)
        coordinator.assigned = PLACES
        consumer.subscribe(["topic"], listener=listener)
        del listener.calls[:]
        await poll_until(consumer, listener, "assigned 2")
    await consumer.close()
    await asyncio.gather(polling, return_exceptions=True)
    assert len(asyncio.all_tasks()) <= 2 + fake_broker.connections


@pytest.mark.parametrize("leaves", ["close", "unsubscribe"])
async def test_leaving_ends_a_join_begun_by_a_poll(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int], leaves: str
) -> None:
    class HoldingBoth(Listener):
        """A listener with two revocation callbacks in progress: the test first lets the callback of the poll continue,
        and then the callback of leaving the group.
        """

        def __init__(self) -> None:
            super().__init__()
            self.turns = [asyncio.Event(), asyncio.Event()]
            self.entered = [asyncio.Event(), asyncio.Event()]

        async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
            number = sum(event.is_set() for event in self.entered)
            self.entered[number].set()
            await self.turns[number].wait()

    listener = HoldingBoth()
    consumer = consumer_of(fake_broker, fast)
    await consumer.start()
    consumer.subscribe(["topic"], listener=listener)
    await poll_until(consumer, listener, "assigned 2")
    coordinator.errors[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
    joined = len(fake_broker.requests_of(JoinGroupRequest))
    fake_broker.handlers[JoinGroupRequest] = lambda request: None  # the other members do not rejoin
    polling = asyncio.ensure_future(consumer.poll(60_000))
    await listener.entered[0].wait()
    leaving = asyncio.ensure_future(getattr(consumer, leaves)())
    await listener.entered[1].wait()
    listener.turns[0].set()
    await fake_broker.received(JoinGroupRequest, joined + 1)
    listener.turns[1].set()
    await leaving
    assert len(fake_broker.requests_of(LeaveGroupRequest)) == 1
    await consumer.close()
    async with asyncio.timeout(5):
        with pytest.raises(ClientClosed):
            await polling
    assert len(fake_broker.requests_of(JoinGroupRequest)) == joined + 1
    assert len(asyncio.all_tasks()) <= 2 + fake_broker.connections
    assert not [task for task in asyncio.all_tasks() if "GroupCoordinator._join" in repr(task)]
