"""A stopping broker keeps fetching while leaders count it as in sync, and a new leader waits for a follower after an
election.
"""

from __future__ import annotations

from functools import partial

import pytest
from tests.support.hosted_partitions import EMPTY
from tests.support.hosts import host_of

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata.model.image import PartitionState, Topic
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.replicas import AWAITED_SECONDS, Replicas
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.errors import ErrorCode, KafkaError


class Fetched:
    """Replaces the fetchers; records which partitions are fetched, and in which leader epoch."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, int], int] = {}

    def follow(self, partition: Partition) -> None:
        self.partitions[partition.topic, partition.index] = partition.leader_epoch

    def forget(self, partition: Partition) -> None:
        self.partitions.pop((partition.topic, partition.index), None)


def led_by(broker: int, isr: tuple[int, ...], epoch: int, partition_epoch: int) -> Topic:
    state = PartitionState((1, 2), isr, broker, epoch, partition_epoch)
    return Topic("orders", bytes([1]) * 16, {0: state, 1: state})


@pytest.fixture
def fetched() -> Fetched:
    return Fetched()


@pytest.fixture
def replicas(logs: LogManager, tasks: Tasks, fetched: Fetched) -> Replicas:
    return Replicas(1, logs, lambda overrides: LogConfig(), host_of(tasks=tasks), lambda _: fetched)  # type: ignore[arg-type, return-value]


async def test_a_stopping_broker_fetches_while_it_is_in_sync_and_no_longer(
    replicas: Replicas, fetched: Fetched
) -> None:
    followed = EMPTY.with_topic(led_by(2, (2, 1), 0, 0))
    replicas.on_image(EMPTY, followed)
    await replicas.until_opened()
    assert fetched.partitions == {("orders", 0): 0, ("orders", 1): 0}
    replicas.leave()
    assert len(fetched.partitions) == 2, "acks=all waits for it"
    out = followed.with_partition("orders", 0, PartitionState((1, 2), (2,), 2, 0, 1))
    replicas.on_image(followed, out)
    assert fetched.partitions == {("orders", 1): 0}, "the leader would have it join again"
    replicas.on_image(out, out.with_partition("orders", 1, PartitionState((1, 2), (2,), 2, 1, 1)))
    assert fetched.partitions == {}


async def test_a_stopping_broker_ends_fetching_where_it_is_out_of_sync(replicas: Replicas, fetched: Fetched) -> None:
    replicas.on_image(EMPTY, EMPTY.with_topic(led_by(2, (2,), 0, 0)))
    await replicas.until_opened()
    assert len(fetched.partitions) == 2
    replicas.leave()
    assert fetched.partitions == {}


@pytest.mark.parametrize("is_in_sync", [False, True])
async def test_a_stopping_broker_fetches_after_a_truncation_only_where_it_is_in_sync(
    replicas: Replicas, fetched: Fetched, is_in_sync: bool
) -> None:
    replicas.on_image(EMPTY, EMPTY.with_topic(led_by(2, (2, 1) if is_in_sync else (2,), 0, 0)))
    await replicas.until_opened()
    partition = replicas.hosted("orders", 0)
    assert partition is not None
    fetched.forget(partition)  # as during a truncation
    replicas.leave()
    replicas.on_truncated(partition)
    assert (("orders", 0) in fetched.partitions) == is_in_sync


async def test_a_broker_that_has_resigned_everything_leads_nothing_by_a_later_image(replicas: Replicas) -> None:
    """A partition forgets a proposed ISR when it resigns, and the controller may still grant that ISR."""
    led = EMPTY.with_topic(led_by(1, (1,), 0, 0))
    replicas.on_image(EMPTY, led)
    await replicas.until_opened()
    partition = replicas.hosted("orders", 0)
    assert partition is not None
    partition.in_sync.propose((1, 2))
    replicas.close()
    replicas.on_image(led, led.with_topic(led_by(1, (1,), 0, 1)))
    await replicas.until_settled()
    assert partition.is_resigned
    for find in (partial(replicas.leader, "orders"), partial(replicas.leader_by_id, bytes([1]) * 16)):
        with pytest.raises(KafkaError) as raised:  # another broker may lead already, and know newer offsets
            find(0)
        assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_follower_is_awaited_until_it_asks_in_the_new_epoch_but_not_for_long(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(replicas, "_monotonic", lambda: now[0])
    first, second = led_by(1, (1, 2), 0, 0), led_by(1, (1, 2), 1, 1)
    replicas.on_image(EMPTY, EMPTY.with_topic(first))
    await replicas.until_opened()
    assert replicas.awaits(2)
    assert not replicas.awaits(3)
    for index in (0, 1):
        assert replicas.awaits(2)
        replicas.leader("orders", index).on_follower_fetch(2, 0)
    assert not replicas.awaits(2)
    replicas.on_image(EMPTY.with_topic(first), EMPTY.with_topic(second))
    assert replicas.awaits(2)
    now[0] += AWAITED_SECONDS
    assert not replicas.awaits(2)
