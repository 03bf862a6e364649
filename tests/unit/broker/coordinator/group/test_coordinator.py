"""The I/O part of the group coordinator removes offsets of deleted topics eventually, even if a first attempt fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.loop_turns import turns

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group import coordinator as module
from oncelog_broker.coordinator.group.coordinator import GroupCoordinator
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.records import offset_record
from oncelog_broker.coordinator.runtime import LOAD_RETRY_SECONDS, StepFailed
from oncelog_broker.metadata.model.image import ClusterImage, PartitionState, Topic
from oncelog_protocol.coordinator_records.consumer_offsets import OffsetCommitValue
from oncelog_protocol.errors import ErrorCode, KafkaError

GROUP = "g"
TOPICS = ("deleted", "kept")


@pytest.fixture
def groups(internal_topic: Any, monkeypatch: pytest.MonkeyPatch) -> GroupCoordinator:
    """A coordinator that retries in each turn of the event loop."""
    monkeypatch.setattr(module, "FORGET_RETRY_SECONDS", 0)
    return GroupCoordinator(
        BrokerConfig.of({}),
        internal_topic,
        SimpleNamespace(),  # type: ignore[arg-type]  # there are no share groups
        internal_topic.host,
    )


def with_topics(image: ClusterImage, *names: str) -> ClusterImage:
    state = PartitionState((1,), (1,), 1, 0, 0)
    for number, name in enumerate(names, 1):
        image = image.with_topic(Topic(name, bytes([number]) * 16, {0: state}))
    return image


def commit(groups: GroupCoordinator, topic: str, offset: int) -> None:
    effects = Effects()
    effects.append(offset_record(GROUP, topic, 0, OffsetCommitValue(offset=offset, metadata="", commit_timestamp=0)))
    groups.runtime.step(groups.runtime.shard(GROUP), lambda machine: effects)


def committed(groups: GroupCoordinator) -> dict[str, int]:
    offsets = groups.runtime.all_shards()[0].machine.offsets
    return {topic: found.offset for topic in TOPICS if (found := offsets.get(GROUP, topic, 0)) is not None}


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)


async def until_gone(groups: GroupCoordinator) -> None:
    await until(lambda: "deleted" not in committed(groups))


def both_committed(groups: GroupCoordinator, internal_topic: Any) -> tuple[ClusterImage, ClusterImage]:
    """Commit offsets of two topics; return the images before and after one of the topics was deleted."""
    before = with_topics(internal_topic.lead(), *TOPICS)
    groups.on_image(ClusterImage(""), before)
    for topic in TOPICS:
        commit(groups, topic, 5)
    return before, before.without_topic("deleted")


async def test_offsets_of_a_deleted_topic_are_removed(groups: GroupCoordinator, internal_topic: Any) -> None:
    groups.on_image(*both_committed(groups, internal_topic))
    await until_gone(groups)
    assert committed(groups) == {"kept": 5}
    await internal_topic.tasks.close()


async def test_offsets_of_a_deleted_topic_are_removed_when_the_gate_opens(
    groups: GroupCoordinator, internal_topic: Any
) -> None:
    """The topic was deleted while the broker did not know whether its metadata store session was still open. The broker
    then reads the cluster metadata again before it serves clients again.
    """
    before, after = both_committed(groups, internal_topic)
    internal_topic.may_lead = lambda: False
    groups.on_image(before, after)
    await turns()
    assert committed(groups) == {"deleted": 5, "kept": 5}
    internal_topic.may_lead = None
    await until_gone(groups)
    assert committed(groups) == {"kept": 5}
    await internal_topic.tasks.close()


async def test_offsets_of_a_deleted_topic_are_removed_when_the_log_is_loaded(
    groups: GroupCoordinator, internal_topic: Any
) -> None:
    before, after = both_committed(groups, internal_topic)
    partition = internal_topic.led.pop(0)
    groups.runtime.on_opened({"__consumer_offsets"})
    internal_topic.led[0] = partition
    groups.runtime.on_opened({"__consumer_offsets"})
    (shard,) = groups.runtime.all_shards()
    assert not shard.is_loaded
    groups.on_image(before, after)
    await until(lambda: shard.is_loaded)
    await until_gone(groups)
    assert committed(groups) == {"kept": 5}
    await internal_topic.tasks.close()


async def test_offsets_of_a_deleted_topic_are_removed_when_enough_replicas_are_in_sync(
    groups: GroupCoordinator, internal_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = both_committed(groups, internal_topic)
    partition = groups.runtime.shard(GROUP).partition
    append, refusals = type(partition).append, [ErrorCode.NOT_ENOUGH_REPLICAS] * 2

    def refusing(self: Any, *arguments: Any, **options: Any) -> Any:
        if refusals:
            raise KafkaError(refusals.pop())
        return append(self, *arguments, **options)

    monkeypatch.setattr(type(partition), "append", refusing)
    groups.on_image(before, after)
    await until_gone(groups)
    assert not refusals
    await internal_topic.tasks.close()


async def test_offsets_of_a_re_created_topic_stay(groups: GroupCoordinator, internal_topic: Any) -> None:
    before, after = both_committed(groups, internal_topic)
    internal_topic.may_lead = lambda: False
    groups.on_image(before, after)
    await turns()
    internal_topic.may_lead = None
    commit(groups, "deleted", 1)
    await turns()
    assert committed(groups) == {"deleted": 1, "kept": 5}
    await internal_topic.tasks.close()


async def test_a_step_with_an_unexpected_error_is_not_retried(
    groups: GroupCoordinator, internal_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = both_committed(groups, internal_topic)
    tried: list[int] = []

    def raising(self: GroupMachine, group_id: str, topics: frozenset[str], limit: int) -> Effects:
        tried.append(limit)
        raise ZeroDivisionError

    monkeypatch.setattr(GroupMachine, "forget_topics", raising)
    groups.on_image(before, after)
    await turns()
    assert tried == [2]
    await internal_topic.tasks.close()


@pytest.mark.parametrize("reason", ["the log could not be read", "the machine is not what the log says"])
async def test_offsets_of_a_deleted_topic_are_removed_after_a_reload_of_the_log(
    groups: GroupCoordinator, internal_topic: Any, reason: str
) -> None:
    before, after = both_committed(groups, internal_topic)
    shard = groups.runtime.shard(GROUP)
    internal_topic.may_lead = lambda: False
    groups.on_image(before, after)
    await turns()
    if reason == "the log could not be read":
        groups.runtime._load_again(shard, LOAD_RETRY_SECONDS)
    else:
        groups.runtime._fall_back(shard, None, StepFailed(ErrorCode.UNKNOWN_SERVER_ERROR), reload=True)
    internal_topic.may_lead = None
    await until(lambda: groups.runtime.all_shards()[0].is_loaded)
    assert groups.runtime.shard(GROUP) is not shard
    await until_gone(groups)
    assert committed(groups) == {"kept": 5}
    await internal_topic.tasks.close()
