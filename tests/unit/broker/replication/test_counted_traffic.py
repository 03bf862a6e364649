"""Incoming and outgoing bytes are counted exactly once, even if the partition moves or the topic is deleted."""

from __future__ import annotations

import pytest
from tests.support.hosted_partitions import EMPTY, replicated, show, topic
from tests.support.storage import make_batch

from oncelog_broker.metadata.model.image import PartitionState, Topic
from oncelog_broker.replication.replicas import Replicas


@pytest.mark.parametrize("is_taken_away_first", [False, True], ids=["deleted", "taken away, then deleted"])
async def test_counts_outlive_a_deleted_topic_without_its_name(replicas: Replicas, is_taken_away_first: bool) -> None:
    held = EMPTY.with_topic(topic("a", 1, partitions=2))
    replicas.on_image(EMPTY, held)
    await replicas.until_opened()
    for index in range(2):
        replicas.leader("a", index).append(memoryview(make_batch()), required_acks=1)
    if is_taken_away_first:
        elsewhere = PartitionState((2,), (2,), leader=2, leader_epoch=1)
        before, held = held, held.with_topic(Topic("a", bytes([1]) * 16, dict.fromkeys(range(2), elsewhere)))
        replicas.on_image(before, held)
        await replicas.until_settled()
        assert (replicas.traffic["a"].messages_in, replicas.traffic["a"].produces) == (2, 2)
    replicas.on_image(held, held.without_topic("a"))
    await replicas.until_settled()
    assert replicas.traffic == {}
    assert (replicas.traffic_of_deleted.messages_in, replicas.traffic_of_deleted.produces) == (2, 2)


async def test_records_are_counted_once_despite_leader_changes(replicas: Replicas) -> None:
    partition = await show(replicas, replicated(1, 0))
    partition.append(memoryview(make_batch()), required_acks=1)
    assert (partition.messages_in_epoch, partition.traffic.messages_in) == (1, 0)
    await show(replicas, replicated(1, 0), replicated(2, 1), replicated(2, 2), replicated(1, 3))
    assert (partition.messages_in_epoch, partition.traffic.messages_in) == (0, 1)
    partition.append(memoryview(make_batch()), required_acks=1)
    partition.resign()
    partition.resign()
    assert partition.messages_in_epoch + partition.traffic.messages_in == 2


async def test_granted_isr_changes_are_counted(replicas: Replicas) -> None:
    partition = await show(replicas, replicated(1, 0))
    partition.adopt_isr((1,), 1)
    partition.adopt_isr((1, 2), 2)
    partition.adopt_isr((1, 2), 2)
    assert (partition.traffic.isr_shrinks, partition.traffic.isr_expands) == (1, 1)
    partition.lead(1, (1,), (1, 2), partition_epoch=3)
    assert partition.traffic.isr_shrinks == 1, "with a new epoch it was the controller's doing"
