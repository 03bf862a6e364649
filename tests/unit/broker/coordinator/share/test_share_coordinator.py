"""A broker's share coordinator over a real log: the coordinator reloads its state, deletes records that it no longer
needs, and removes the states of deleted topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.coordinator.share import share_coordinator as module
from oncelog_broker.coordinator.share.share_coordinator import ShareCoordinator
from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.coordinator.share.share_state import ShareState
from oncelog_broker.coordinator.share.share_state_machine import StateWrite
from oncelog_broker.coordinator.share.state_batches import DeliveryState, StateBatch
from oncelog_broker.metadata.model.image import ClusterImage, PartitionState, Topic
from oncelog_broker.runtime.answers import settled
from oncelog_protocol.errors import ErrorCode, KafkaError

DATA = Topic("data", b"d" * 16, {0: PartitionState((1,), (1,), 1, 0, 0), 1: PartitionState((1,), (1,), 1, 0, 0)})
KEY, OTHER = ShareKey("g", DATA.topic_id, 0), ShareKey("g", DATA.topic_id, 1)


class Shares:
    """A share coordinator over the internal topic that the tests provide."""

    def __init__(self, topic: Any, **settings: str) -> None:
        self.topic = topic
        self.config = BrokerConfig.of(settings)
        self.image = ClusterImage("")
        self.coordinator = self.new_coordinator()
        self.show(topic.lead().with_topic(DATA))

    def new_coordinator(self) -> ShareCoordinator:
        coordinator = ShareCoordinator(self.config, self.topic, self.topic.host)
        coordinator.runtime._topic = "__consumer_offsets"  # the internal topic of the tests has this name
        return coordinator

    def show(self, image: ClusterImage) -> None:
        self.coordinator.on_image(self.image, image)
        self.image = image

    async def write(self, number: int) -> None:
        batch = StateBatch(2 * number, 2 * number, DeliveryState.ACKNOWLEDGED, 1)
        assert await settled(self.coordinator.write(KEY, StateWrite(1, 3, 0, number, (batch,)))) is None


@pytest.fixture
async def shares(internal_topic: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shares]:
    monkeypatch.setattr(module, "FORGET_RETRY_SECONDS", 0)
    shares = Shares(internal_topic, **{"share.coordinator.snapshot.update.records.per.snapshot": "10"})
    for key in (KEY, OTHER):
        assert await settled(shares.coordinator.initialize(key, 1, 0)) is None
        assert isinstance(await settled(shares.coordinator.read(key, 3)), ShareState)
    yield shares
    shares.coordinator.close()
    await internal_topic.tasks.close()


async def test_what_was_written_is_there_after_a_load(shares: Shares) -> None:
    for number in range(25):
        await shares.write(number)
    before = await settled(shares.coordinator.read(KEY, 3))
    shares.coordinator.close()
    shares.coordinator = shares.new_coordinator()
    shares.image = ClusterImage("")
    shares.show(shares.topic.image.with_topic(DATA))
    while shares.coordinator.runtime.is_loading:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0)
    after = await settled(shares.coordinator.read(KEY, 3))
    assert isinstance(before, ShareState)
    assert isinstance(after, ShareState)
    assert after.batches == before.batches
    assert len(after.batches) == 25


async def test_records_that_newer_snapshots_have_replaced_are_deleted(shares: Shares) -> None:
    for number in range(25):
        await shares.write(number)
    log = shares.topic.led[0].log
    await shares.coordinator.prune()
    assert log.log_start_offset == 2, "the other share partition needs its snapshot, which is young"
    shares.topic.clock.advance_ms(400_000)
    for number in range(25, 40):
        await shares.write(number)
    await shares.coordinator.prune()
    assert log.log_start_offset > 20
    state = await settled(shares.coordinator.read(KEY, 3))
    assert isinstance(state, ShareState)
    assert len(state.batches) == 40


async def test_records_stay_while_the_snapshot_that_replaces_them_is_not_committed(shares: Shares) -> None:
    """A follower may become the next leader after it fetched the new log start, but before it fetched the snapshot
    record.
    """
    partition = shares.topic.led[0]
    before = partition.log.log_end_offset
    shares.topic.epoch += 1
    partition.lead(shares.topic.epoch, (1, 2), (1, 2))
    partition.on_follower_fetch(2, before)
    shares.topic.clock.advance_ms(400_000)
    pruned = asyncio.ensure_future(shares.coordinator.prune())
    await asyncio.sleep(0)
    end = partition.log.log_end_offset
    assert end > before, "cold share partitions are written again"
    assert partition.log.log_start_offset == 0
    partition.on_follower_fetch(2, end)
    await pruned
    assert partition.log.log_start_offset == before


async def test_records_stay_where_the_commit_of_a_snapshot_takes_too_long(shares: Shares) -> None:
    partition = shares.topic.led[0]
    shares.topic.epoch += 1
    partition.lead(shares.topic.epoch, (1, 2), (1, 2))
    shares.topic.clock.advance_ms(400_000)
    pruned = asyncio.ensure_future(shares.coordinator.prune())
    await asyncio.sleep(0)
    shares.topic.advance(5.0)
    await pruned
    assert partition.log.log_start_offset == 0


class IdleReader:
    """Replaces a follower's fetch session in which the partition is idle."""

    is_active = False

    def activate(self) -> None:
        self.is_active = True


async def test_followers_learn_the_log_start_that_pruning_has_moved(shares: Shares) -> None:
    for number in range(25):
        await shares.write(number)
    partition, reader = shares.topic.led[0], IdleReader()
    partition.purgatory.idle[reader] = None
    await shares.coordinator.prune()
    assert partition.log.log_start_offset == 2
    assert reader.is_active


async def test_share_partitions_of_a_deleted_topic_go(shares: Shares) -> None:
    shares.show(shares.image.with_topics((), ["data"]))
    (machine,) = shares.coordinator.runtime.machines()
    for _ in range(50):
        if not machine.states:
            break
        await asyncio.sleep(0)
    assert machine.states == {}
    refused = await settled(shares.coordinator.read(KEY, 3))
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_broker_that_does_not_lead_is_no_coordinator(shares: Shares) -> None:
    shares.show(shares.topic.resign().with_topic(DATA))
    for answer in (
        shares.coordinator.read(KEY, 3),
        shares.coordinator.summary(KEY, 3),
        shares.coordinator.initialize(KEY, 2, 0),
        shares.coordinator.delete(KEY),
    ):
        refused = await settled(answer)
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.NOT_COORDINATOR
