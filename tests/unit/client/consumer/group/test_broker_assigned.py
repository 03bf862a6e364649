"""A member of the consumer protocol (KIP-848) against a coordinator whose responses the test chooses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.fake_group import PLACES, ConsumerCoordinator, Coordinator, places_in
from tests.support.group_consumers import Listener, poll_until

from oncelog.cluster import TopicPartition
from oncelog.consumer.consumer import Consumer
from oncelog.errors import CommitFailed, ConfigError, FencedInstance, KafkaError
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest

FIRST, SECOND = PLACES


@pytest.fixture
def coordinator(fake_broker: Any) -> ConsumerCoordinator:
    return ConsumerCoordinator(fake_broker)


def consumer_of(broker: Any, fast: dict[str, int], **options: Any) -> Consumer:
    return Consumer(
        broker.address, group_id="g", group_protocol="consumer", **{"auto_offset_reset": "earliest", **fast, **options}
    )


async def test_a_member_joins_says_what_it_owns_and_leaves(
    fake_broker: Any, coordinator: ConsumerCoordinator, fast: dict[str, int]
) -> None:
    listener = Listener()
    options = {"group_remote_assignor": "range", "client_rack": "r", "max_poll_interval_ms": 70_000}
    async with consumer_of(fake_broker, fast, **options) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        assert consumer.group_metadata()[:2] == ("g", 1)
        while not any(sent.topic_partitions for sent in coordinator.heartbeats):
            await consumer.poll(10)
    assert listener.calls == ["assigned 2", "revoked 2"]
    joins, *others, leaves = coordinator.heartbeats
    assert (joins.member_epoch, joins.topic_partitions, joins.subscribed_topic_names) == (0, [], ["topic"])
    assert (joins.rebalance_timeout_ms, joins.server_assignor, joins.rack_id) == (70_000, "range", "r")
    assert all(sent.subscribed_topic_names is None and sent.rebalance_timeout_ms == -1 for sent in others)
    assert [places_in(sent.topic_partitions) for sent in others if sent.topic_partitions] == [frozenset(PLACES)]
    assert leaves.member_epoch == -1
    assert len({sent.member_id for sent in coordinator.heartbeats}) == 1


async def test_revoked_partitions_are_committed_and_the_rest_is_read_on(
    fake_broker: Any, coordinator: ConsumerCoordinator, fast: dict[str, int]
) -> None:
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        kept = consumer._positions.get(FIRST)
        coordinator.assigned = (FIRST,)
        await poll_until(consumer, listener, "assigned 2", "revoked 1")
        assert consumer.assignment() == {FIRST}
        assert consumer._positions.get(FIRST) is kept
        while coordinator.epoch != 2:
            await consumer.poll(10)
        coordinator.assigned = PLACES
        await poll_until(consumer, listener, "assigned 2", "revoked 1", "assigned 1")
        assert consumer._positions.get(FIRST) is kept


RETRIED = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
]


@pytest.mark.parametrize("code", RETRIED)
async def test_retriable_errors_are_retried_with_a_full_heartbeat(
    fake_broker: Any, coordinator: ConsumerCoordinator, fast: dict[str, int], code: ErrorCode
) -> None:
    coordinator.errors[ConsumerGroupHeartbeatRequest] = [code]
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        coordinator.errors[ConsumerGroupHeartbeatRequest] = [code]
        coordinator.heartbeats.clear()
        while len(coordinator.heartbeats) < 4:
            await consumer.poll(10)
        failed = next(n for n, sent in enumerate(coordinator.heartbeats) if not sent.rebalance_timeout_ms < 0)
        after = coordinator.heartbeats[failed]
        assert (after.member_epoch, after.subscribed_topic_names) == (1, ["topic"])
        assert places_in(after.topic_partitions) == frozenset(PLACES)
    assert listener.calls == ["assigned 2", "revoked 2"]


@pytest.mark.parametrize(
    ("code", "keeps_id"),
    [
        (ErrorCode.FENCED_MEMBER_EPOCH, True),
        (ErrorCode.UNKNOWN_MEMBER_ID, False),
        (ErrorCode.GROUP_ID_NOT_FOUND, True),
    ],
)
async def test_a_fenced_member_loses_all_partitions_and_rejoins(
    fake_broker: Any, coordinator: ConsumerCoordinator, fast: dict[str, int], code: ErrorCode, keeps_id: bool
) -> None:
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        coordinator.errors[ConsumerGroupHeartbeatRequest] = [code]
        await poll_until(consumer, listener, "assigned 2", "lost 2", "assigned 2")
    ids = [sent.member_id for sent in coordinator.heartbeats]
    joins = [sent for sent in coordinator.heartbeats if sent.member_epoch == 0]
    assert len(joins) == 2
    assert (ids[0] == joins[1].member_id) is keeps_id


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "group g"),
        (ErrorCode.UNRELEASED_INSTANCE_ID, "when its session has ended"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, "group g: no"),
    ],
)
async def test_a_lasting_error_is_raised_and_retried_by_the_next_poll(
    fake_broker: Any, coordinator: ConsumerCoordinator, fast: dict[str, int], code: ErrorCode, words: str
) -> None:
    coordinator.errors[ConsumerGroupHeartbeatRequest] = [code]
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        with pytest.raises(KafkaError, match=words) as raised:
            while True:
                await consumer.poll(1000)
        assert raised.value.code is code
        await poll_until(consumer, listener, "assigned 2")


async def test_a_broker_without_the_protocol_is_named(fake_broker: Any, fast: dict[str, int]) -> None:
    Coordinator(fake_broker)
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"])
        with pytest.raises(KafkaError, match=r"Kafka does from 4\.0 on"):
            while True:
                await consumer.poll(1000)


async def test_a_fenced_instance_stops(
    fake_broker: Any, coordinator: ConsumerCoordinator, fast: dict[str, int]
) -> None:
    listener = Listener()
    async with consumer_of(fake_broker, fast, group_instance_id="i") as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        coordinator.errors[ConsumerGroupHeartbeatRequest] = [ErrorCode.FENCED_INSTANCE_ID]
        with pytest.raises(FencedInstance):
            while True:
                await consumer.poll(1000)
    assert listener.calls == ["assigned 2", "lost 2"]
    assert all(sent.member_epoch >= 0 for sent in coordinator.heartbeats)


async def test_a_static_member_leaves_for_a_while(
    fake_broker: Any, coordinator: ConsumerCoordinator, fast: dict[str, int]
) -> None:
    listener = Listener()
    async with consumer_of(fake_broker, fast, group_instance_id="i") as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
    assert (coordinator.heartbeats[-1].member_epoch, coordinator.heartbeats[-1].instance_id) == (-2, "i")


@pytest.mark.parametrize("what", ["revoked", "assigned"])
async def test_a_callback_that_fails_is_not_called_again(
    fake_broker: Any, coordinator: ConsumerCoordinator, fast: dict[str, int], what: str
) -> None:
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        if what == "revoked":
            await poll_until(consumer, listener, "assigned 2")
            coordinator.assigned = ()
        listener.trouble[what] = OSError("no disk")
        with pytest.raises(OSError, match="no disk"):
            while True:
                await consumer.poll(1000)
        for _ in range(5):
            await consumer.poll(10)
        assert listener.calls == (["assigned 2"] if what == "assigned" else ["assigned 2", "revoked 2"])
        assert consumer.assignment() == (set(PLACES) if what == "assigned" else set())


@pytest.mark.parametrize("what", ["revoked", "assigned"])
async def test_a_callback_that_is_cancelled_is_called_again(
    fake_broker: Any, coordinator: ConsumerCoordinator, fast: dict[str, int], what: str
) -> None:
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        calls = ["assigned 2"]
        if what == "revoked":
            await poll_until(consumer, listener, *calls)
            coordinator.assigned = ()
            calls = [*calls, "revoked 2"]
        listener.trouble[what] = asyncio.CancelledError()
        with pytest.raises(asyncio.CancelledError):
            while True:
                await consumer.poll(1000)
        await poll_until(consumer, listener, *calls, f"{what} 2")


async def test_a_stale_commit_is_repeated_in_the_present_epoch(
    fake_broker: Any, coordinator: ConsumerCoordinator, fast: dict[str, int]
) -> None:
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        coordinator.errors[OffsetCommitRequest] = [ErrorCode.STALE_MEMBER_EPOCH]
        await consumer.commit({FIRST: 5})
        assert coordinator.committed == {FIRST: 5}
        coordinator.errors[OffsetCommitRequest] = [ErrorCode.FENCED_MEMBER_EPOCH]
        with pytest.raises(CommitFailed):
            await consumer.commit({FIRST: 6})


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
async def test_c15_an_offset_fetch_in_a_stale_epoch_is_repeated(
    fake_broker: Any, coordinator: ConsumerCoordinator, fast: dict[str, int], code: ErrorCode
) -> None:
    coordinator.committed = {FIRST: 0, SECOND: 0}
    coordinator.errors[OffsetFetchRequest] = [code, code]
    listener = Listener()
    async with consumer_of(fake_broker, fast, auto_offset_reset="none") as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        assert (await consumer.position(FIRST), await consumer.position(SECOND)) == (0, 0)
    asked = fake_broker.requests_of(OffsetFetchRequest)
    assert len(asked) >= 3
    assert asked[0].groups[0].member_id == coordinator.heartbeats[0].member_id
    assert asked[0].groups[0].member_epoch == 1


async def test_a_member_that_does_not_poll_leaves_and_rejoins(
    fake_broker: Any, coordinator: ConsumerCoordinator, fast: dict[str, int]
) -> None:
    listener = Listener()
    async with consumer_of(fake_broker, fast, max_poll_interval_ms=50) as consumer:
        consumer.subscribe(["topic"], listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        async with asyncio.timeout(10):
            await coordinator.has_left.wait()
        await poll_until(consumer, listener, "assigned 2", "lost 2", "assigned 2")


async def test_a_pattern_goes_to_the_broker(
    fake_broker: Any, coordinator: ConsumerCoordinator, fast: dict[str, int]
) -> None:
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(pattern="to.*", listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        consumer.subscribe(["topic"], listener=listener)
        while not any(sent.subscribed_topic_names == ["topic"] for sent in coordinator.heartbeats):
            await consumer.poll(10)
    regexes = [sent.subscribed_topic_regex for sent in coordinator.heartbeats]
    assert regexes[0] == "to.*"
    assert "" in regexes


async def test_a_topic_that_is_not_known_yet_is_waited_for(
    fake_broker: Any, coordinator: ConsumerCoordinator, fast: dict[str, int]
) -> None:
    coordinator.assigned = (*PLACES, TopicPartition("new", 0))
    listener = Listener()
    async with consumer_of(fake_broker, fast) as consumer:
        consumer.subscribe(pattern=".*", listener=listener)
        await poll_until(consumer, listener, "assigned 2")
        fake_broker.topics["new"] = 1
        await poll_until(consumer, listener, "assigned 2", "assigned 1")
        assert TopicPartition("new", 0) in consumer.assignment()


@pytest.mark.parametrize(
    "options",
    [
        {"session_timeout_ms": 6000},
        {"heartbeat_interval_ms": 100},
        {"partition_assignment_strategy": ["range"]},
    ],
)
def test_settings_decided_by_the_broker_cannot_be_set(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="the broker decides"):
        Consumer("127.0.0.1:1", group_id="g", group_protocol="consumer", **options)


def test_an_assignor_of_the_broker_needs_the_protocol() -> None:
    with pytest.raises(ConfigError, match="group_protocol='consumer'"):
        Consumer("127.0.0.1:1", group_id="g", group_remote_assignor="range")
