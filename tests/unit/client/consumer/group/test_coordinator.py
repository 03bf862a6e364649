"""A member against a coordinator with responses that the test chooses: every error, and misbehaving callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest
from tests.support.fake_group import PLACES, Coordinator
from tests.support.group_consumers import Listener, consumer_of, poll_until

from oncelog.cluster import TopicPartition
from oncelog.consumer.consumer import Consumer
from oncelog.consumer.group.subscription import Subscription, encode_assignment
from oncelog.errors import CommitFailed, ConfigError, FencedInstance, KafkaError
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.heartbeat import HeartbeatRequest
from oncelog_protocol.messages.join_group import JoinGroupRequest
from oncelog_protocol.messages.leave_group import LeaveGroupRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest
from oncelog_protocol.messages.sync_group import SyncGroupRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

RETRIED = [
    (FindCoordinatorRequest, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (JoinGroupRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (JoinGroupRequest, ErrorCode.NOT_COORDINATOR),
    (JoinGroupRequest, ErrorCode.UNKNOWN_MEMBER_ID),
    (JoinGroupRequest, ErrorCode.REBALANCE_IN_PROGRESS),
    (SyncGroupRequest, ErrorCode.REBALANCE_IN_PROGRESS),
    (SyncGroupRequest, ErrorCode.NOT_COORDINATOR),
    (SyncGroupRequest, ErrorCode.UNKNOWN_MEMBER_ID),
    (SyncGroupRequest, ErrorCode.ILLEGAL_GENERATION),
    (HeartbeatRequest, ErrorCode.NOT_COORDINATOR),
    (HeartbeatRequest, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (OffsetFetchRequest, ErrorCode.NOT_COORDINATOR),
    (OffsetFetchRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (OffsetFetchRequest, ErrorCode.UNSTABLE_OFFSET_COMMIT),
]


@pytest.mark.parametrize(("request_type", "code"), RETRIED)
async def test_retriable_errors_are_retried(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int], request_type: type, code: ErrorCode
) -> None:
    coordinator.errors[request_type] = [code, code]
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        assert await consumer.position(PLACES[0]) == 0
        while coordinator.errors[request_type]:
            await consumer.poll(10)
        assert consumer.group_metadata() == ("g", coordinator.generation, "me", None)
    assert listener.calls == ["assigned 2", "revoked 2"]
    assert len(fake_broker.requests_of(LeaveGroupRequest)) == 1


@pytest.mark.virtual_time
async def test_a_member_whose_sync_group_is_not_answered_joins_again_after_the_request_timeout(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    """The connection stays open without responses, for example because the coordinator's machine lost power."""

    def silent(_: SyncGroupRequest) -> None:
        fake_broker.handlers[SyncGroupRequest] = coordinator.SyncGroupRequest

    fake_broker.handlers[SyncGroupRequest] = silent
    listener = Listener()
    async with consumer_of(fake_broker, fast, request_timeout_ms=1_000) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
    assert len(fake_broker.requests_of(SyncGroupRequest)) == 2
    assert len(fake_broker.requests_of(FindCoordinatorRequest)) == 2


@pytest.mark.virtual_time
async def test_a_member_joins_the_new_coordinator_while_the_old_one_holds_its_join_group_in_silence(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    """JoinGroup may be held for five minutes, and the former coordinator's machine may have lost power."""
    find = coordinator.FindCoordinatorRequest

    def elsewhere(request: FindCoordinatorRequest) -> Any:
        answer = find(request)
        if fake_broker.requests_of(JoinGroupRequest)[1:]:
            answer.coordinators[0].host = "localhost"
        return answer

    def silent(_: JoinGroupRequest) -> None:
        fake_broker.handlers[JoinGroupRequest] = coordinator.JoinGroupRequest

    fake_broker.handlers[FindCoordinatorRequest] = elsewhere
    coordinator.errors[JoinGroupRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
    listener = Listener()
    async with consumer_of(fake_broker, fast, request_timeout_ms=1_000) as consumer:
        began = asyncio.get_running_loop().time()
        consumer.subscribe(["topic"], listener=listener)
        fake_broker.handlers[JoinGroupRequest] = silent
        await poll_until(consumer, listener, "assigned 2")
        assert asyncio.get_running_loop().time() - began < 3


@pytest.mark.virtual_time
async def test_a_join_group_that_the_coordinator_holds_for_other_members_waits_on(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    async def late(request: JoinGroupRequest) -> Any:
        await asyncio.sleep(3.5)
        return coordinator.JoinGroupRequest(request)

    fake_broker.handlers[JoinGroupRequest] = late
    listener = Listener()
    async with consumer_of(fake_broker, fast, request_timeout_ms=1_000) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
    assert len(fake_broker.requests_of(JoinGroupRequest)) == 2, "for a member id, and for the group"
    assert len(fake_broker.requests_of(FindCoordinatorRequest)) == 7, "each second, beside the first one"


@pytest.mark.parametrize(
    ("code", "call"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, "revoked 2"),
        (ErrorCode.ILLEGAL_GENERATION, "lost 2"),
        (ErrorCode.UNKNOWN_MEMBER_ID, "lost 2"),
    ],
)
async def test_the_listener_hears_whether_partitions_are_revoked_or_lost(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int], code: ErrorCode, call: str
) -> None:
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        coordinator.errors[HeartbeatRequest] = [code]
        await poll_until(consumer, listener, "assigned 2", call, "assigned 2")


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL])
async def test_a_lasting_error_is_raised_and_retried_by_the_next_poll(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int], code: ErrorCode
) -> None:
    coordinator.errors[JoinGroupRequest] = [code]
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        with pytest.raises(KafkaError) as raised:
            while True:
                await consumer.poll(1000)
        assert raised.value.code is code
        await poll_until(consumer, listener, "assigned 2")


async def test_a_fenced_member_stops(fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]) -> None:
    listener = Listener()
    async with consumer_of(fake_broker, fast, group_instance_id="i") as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        coordinator.errors[HeartbeatRequest] = [ErrorCode.FENCED_INSTANCE_ID]
        with pytest.raises(FencedInstance):
            while True:
                await consumer.poll(1000)
    assert listener.calls == ["assigned 2", "lost 2"]
    assert not fake_broker.requests_of(LeaveGroupRequest)


async def test_static_members_do_not_leave(fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]) -> None:
    listener = Listener()
    async with consumer_of(fake_broker, fast, group_instance_id="i") as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
    assert not fake_broker.requests_of(LeaveGroupRequest)


@pytest.mark.parametrize("what", ["revoked", "assigned"])
async def test_a_callback_that_fails_is_not_called_again(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int], what: str
) -> None:
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        listener.trouble[what] = OSError("no disk")
        coordinator.errors[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
        with pytest.raises(OSError, match="no disk"):
            while True:
                await consumer.poll(1000)
        await poll_until(consumer, listener, "assigned 2", "revoked 2", "assigned 2")
        assert consumer.assignment() == set(PLACES)


@pytest.mark.parametrize("what", ["revoked", "assigned"])
async def test_a_callback_that_is_cancelled_is_called_again(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int], what: str
) -> None:
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        listener.trouble[what] = asyncio.CancelledError()
        coordinator.errors[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
        with pytest.raises(asyncio.CancelledError):
            while True:
                await consumer.poll(1000)
        assert consumer.assignment() == set(PLACES)
        calls = (
            ["revoked 2", "revoked 2", "assigned 2"] if what == "revoked" else ["revoked 2", "assigned 2", "assigned 2"]
        )
        await poll_until(consumer, listener, "assigned 2", *calls)


async def test_cooperative_members_revoke_only_reassigned_partitions(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    listener = Listener()
    options = {"partition_assignment_strategy": ["cooperative-sticky"]}
    async with consumer_of(fake_broker, fast, **options) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        coordinator.assigned = PLACES[:1]
        coordinator.errors[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
        await poll_until(consumer, listener, "assigned 2", "revoked 1", "assigned 0", "assigned 0")
        assert consumer.assignment() == {PLACES[0]}
    owned = [
        len(Subscription.decode(request.protocols[0].metadata).owned)
        for request in fake_broker.requests_of(JoinGroupRequest)
    ]
    # The member rejoins once more, so that other members get the partitions that it gave up.
    assert owned == [0, 0, 2, 1]


async def test_a_callback_that_fails_for_what_a_cooperative_member_gives_up_is_not_called_again(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    listener = Listener()
    options = {"partition_assignment_strategy": ["cooperative-sticky"]}
    async with consumer_of(fake_broker, fast, **options) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        coordinator.assigned = PLACES[:1]
        listener.trouble["revoked"] = OSError("no disk")
        coordinator.errors[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
        with pytest.raises(OSError, match="no disk"):
            while True:
                await consumer.poll(1000)
        assert consumer.assignment() == {PLACES[0]}
        await poll_until(consumer, listener, "assigned 2", "revoked 1", "assigned 0", "assigned 0")


@pytest.mark.virtual_time
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_generation_that_goes_while_partitions_are_given_up_before_joining(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int], strategy: str
) -> None:
    """The generation may end during a rebalance callback, for example if the callback takes longer than the session
    timeout.

    The listener is notified of the loss before the member rejoins, and the member gets its new assignment.
    """
    fake_broker.topics["other"] = 1
    coordinator.assigned = (*PLACES, TopicPartition("other", 0))

    class Slow(Listener):
        async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
            await super().on_revoked(partitions)
            coordinator.errors[HeartbeatRequest] = [ErrorCode.ILLEGAL_GENERATION]
            await asyncio.sleep(1)
            assert not coordinator.errors[HeartbeatRequest], "a heartbeat has told"

    listener = Slow()
    async with consumer_of(fake_broker, fast, partition_assignment_strategy=[strategy]) as consumer:
        consumer.subscribe(["topic", "other"], listener=listener)
        await poll_until(consumer, listener, "assigned 3")
        coordinator.assigned = PLACES
        consumer.subscribe(["topic"], listener=listener)
        revoked = ["revoked 3"] if strategy == "range" else ["revoked 1", "lost 2"]
        await poll_until(consumer, listener, "assigned 3", *revoked, "assigned 2")
        assert consumer.assignment() == set(PLACES)


COMMIT_ERRORS = [
    (ErrorCode.REBALANCE_IN_PROGRESS, CommitFailed),
    (ErrorCode.ILLEGAL_GENERATION, CommitFailed),
    (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailed),
    (ErrorCode.FENCED_INSTANCE_ID, FencedInstance),
    (ErrorCode.OFFSET_METADATA_TOO_LARGE, KafkaError),
]


@pytest.mark.parametrize(("code", "raised"), COMMIT_ERRORS)
async def test_commits_that_are_refused_raise(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int], code: ErrorCode, raised: type[Exception]
) -> None:
    listener = Listener()
    async with consumer_of(fake_broker, fast, enable_auto_commit=False) as consumer:
        with pytest.raises(ValueError):
            await consumer.commit({PLACES[0]: -3})
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        coordinator.errors[OffsetCommitRequest] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
        await consumer.commit({PLACES[0]: 3})
        assert coordinator.committed == {PLACES[0]: 3}
        coordinator.errors[OffsetCommitRequest] = [code]
        with pytest.raises(raised):
            await consumer.commit({PLACES[0]: 4})
        assert coordinator.committed == {PLACES[0]: 3}


async def polled_twice(consumer: Consumer) -> None:
    """Poll twice, so that the records of the first poll count as processed and may be committed."""
    for _ in range(2):
        while not await consumer.poll(10, max_records=1):
            pass
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("explicit", [2, 7])
async def test_an_automatic_commit_that_is_retried_makes_way_for_one_that_was_asked_for(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int], explicit: int
) -> None:
    for _ in range(5):
        fake_broker.append(build_batch([Record(0, 1, None, b"v", [])]))
    seen: list[int] = []
    held = asyncio.Event()

    async def commit(request: Any) -> Any:
        (part,) = request.topics[0].partitions
        seen.append(part.committed_offset)
        if len(seen) == 1:
            await held.wait()
        coordinator.errors[OffsetCommitRequest] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] if len(seen) == 1 else []
        return coordinator.OffsetCommitRequest(request)

    fake_broker.handlers[OffsetCommitRequest] = commit
    options = {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 1, "max_partition_fetch_bytes": 1, **fast}
    async with Consumer(fake_broker.address, group_id="g", **options) as consumer:
        consumer.assign([PLACES[0]])
        await polled_twice(consumer)
        await fake_broker.received(OffsetCommitRequest)
        committing = asyncio.ensure_future(consumer.commit({PLACES[0]: explicit}))
        await asyncio.sleep(0)
        held.set()
        await committing
        # Automatic commits from here on cover only records that are returned after this poll.
        await consumer.poll(5, max_records=1)
        consumer.pause(PLACES[0])
        assert seen[1:] == [explicit]
        assert coordinator.committed == {PLACES[0]: explicit}


async def test_commits_go_in_the_order_in_which_they_were_asked_for(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    coordinator.errors[OffsetCommitRequest] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    async with Consumer(fake_broker.address, group_id="g", enable_auto_commit=False, **fast) as consumer:
        consumer.assign(PLACES)
        await asyncio.gather(*(consumer.commit({PLACES[0]: offset}) for offset in (3, 1, 2)))
    assert coordinator.committed == {PLACES[0]: 2}
    sent = [request.topics[0].partitions[0] for request in fake_broker.requests_of(OffsetCommitRequest)]
    assert [partition.committed_offset for partition in sent] == [3, 3, 1, 2]


async def test_an_invalid_generation_is_an_error_and_the_member_rejoins(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    works = fake_broker.handlers[JoinGroupRequest]
    broken = [True]

    def join(request: Any) -> Any:
        answer = works(request)
        if answer.error_code == ErrorCode.NONE and broken:
            broken.pop()
            answer.generation_id = -1
        return answer

    fake_broker.handlers[JoinGroupRequest] = join
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        with pytest.raises(KafkaError, match="joined without a generation"):
            await consumer.poll(10_000)
        await poll_until(consumer, listener, "assigned 2")


async def test_an_unreadable_assignment_is_an_error_and_the_member_rejoins(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    works = fake_broker.handlers[SyncGroupRequest]
    broken = [b"\0\0\0\0\1\0", encode_assignment([TopicPartition("topic", -1)])]

    def sync(request: Any) -> Any:
        answer = works(request)
        if broken:
            answer.assignment = broken.pop()
        return answer

    fake_broker.handlers[SyncGroupRequest] = sync
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        for _ in range(2):
            with pytest.raises(KafkaError, match="assignment cannot be read"):
                await consumer.poll(10_000)
        await poll_until(consumer, listener, "assigned 2")


async def test_a_coordinator_that_always_gives_a_member_id_is_asked_less_and_less_often(
    fake_broker: Any, coordinator: Coordinator
) -> None:
    coordinator.errors[JoinGroupRequest] = [ErrorCode.MEMBER_ID_REQUIRED] * 100
    options = {"retry_backoff_ms": 20, "retry_backoff_max_ms": 10_000, "enable_auto_commit": False}
    async with Consumer(fake_broker.address, group_id="g", **options) as consumer:
        consumer.subscribe(["topic"])
        began = asyncio.get_running_loop().time()
        await consumer.poll(0)
        await fake_broker.received(JoinGroupRequest, 5)
        assert asyncio.get_running_loop().time() - began >= 0.8 * 0.02 * (1 + 2 + 4)


async def test_a_commit_outside_of_any_generation_is_refused_at_once(
    fake_broker: Any, coordinator: Coordinator, fast: dict[str, int]
) -> None:
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"])
        with pytest.raises(CommitFailed):
            await consumer.commit({PLACES[0]: 3})
    assert not fake_broker.requests_of(OffsetCommitRequest)


def test_strategies_are_checked_early() -> None:
    with pytest.raises(ConfigError, match="'fair'"):
        Consumer("h", group_id="g", partition_assignment_strategy=["fair"])
    for wrong in ({"group_id": ""}, {"group_instance_id": "i"}, {"partition_assignment_strategy": "range"}):
        with pytest.raises(ConfigError):
            Consumer("h", **wrong)
    with pytest.raises(ConfigError, match="heartbeat_interval_ms"):
        Consumer("h", group_id="g", heartbeat_interval_ms=10, session_timeout_ms=10)


async def test_subscribing_needs_a_group_id(fake_broker: Any) -> None:
    async with Consumer(fake_broker.address) as consumer:
        with pytest.raises(ValueError):
            consumer.subscribe(["topic"])
        with pytest.raises(ValueError):
            consumer.group_metadata()
