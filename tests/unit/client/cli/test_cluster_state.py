"""`oncelog brokers` and `oncelog doctor` read the cluster's state correctly even if topics and brokers disappear during
the reading.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.admin.log_dirs import LogDirectory, StoredReplica
from oncelog.admin.reassignments import Reassignment
from oncelog.cli import cluster_state
from oncelog.cli.cluster_state import ClusterState, read_state
from oncelog.cluster import Broker, Partition, Topic, TopicPartition
from oncelog.errors import KafkaError, PartialFailure, error_for
from oncelog_protocol.errors import ErrorCode

ORDERS = TopicPartition("orders", 0)
GONE = error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
STORAGE = error_for(ErrorCode.KAFKA_STORAGE_ERROR)


class OneTopic:
    """An Admin of a cluster with two brokers and one topic; `deleted` topics are listed but cannot be described."""

    def __init__(self, *deleted: str, silent: int | None = None, error: KafkaError = GONE) -> None:
        self.deleted = deleted
        self.silent = silent
        self.error = error
        self.topics = {"orders": Topic("orders", partitions={0: Partition(0, 1, replicas=(1, 2, 3), isr=(1, 2))})}

    async def describe_cluster(self) -> Any:
        return SimpleNamespace(brokers=(Broker(1, "one", 9092), Broker(2, "two", 9092, "r")), controller_id=2)

    async def list_topics(self, *, include_internal: bool) -> list[str]:
        assert include_internal
        return [*self.topics, *self.deleted]

    async def describe_topics(self, names: list[str]) -> dict[str, Topic]:
        if self.deleted:
            raise PartialFailure(dict.fromkeys(self.deleted, self.error), self.topics)
        return self.topics

    async def list_partition_reassignments(self) -> dict[TopicPartition, Reassignment]:
        return {ORDERS: Reassignment((1, 2, 3), (3,), (2,))}

    async def describe_log_dirs(self, nodes: list[int]) -> Any:
        (node,) = nodes
        if node == self.silent:
            await asyncio.Event().wait()
        replica = StoredReplica(100 * node, 0, is_future=False)
        return {node: {"/a": LogDirectory({ORDERS: replica}, 1000, 500), "/b": STORAGE}}


async def test_moves_count_as_done_and_every_holder_is_known() -> None:
    state = await read_state(OneTopic())  # type: ignore[arg-type]
    assert state.assignment == {ORDERS: (1, 3)}
    assert state.holders == {1, 2, 3}
    assert state.racks == {1: None, 2: "r"}
    assert state.sizes == {ORDERS: 200}, "the largest replica"
    assert (state.free_bytes(1), state.free_bytes(3)) == (500, None), "a failed directory has no room"
    assert [state.replicas_behind(node) for node in (1, 2, 3)] == [0, 0, 1]


async def test_a_topic_that_is_deleted_meanwhile_is_left_out() -> None:
    state = await read_state(OneTopic("going"))  # type: ignore[arg-type]
    assert state.topics.keys() == {"orders"}


async def test_another_error_of_a_topic_is_raised() -> None:
    with pytest.raises(PartialFailure):
        await read_state(OneTopic("orders", error=STORAGE))  # type: ignore[arg-type]


async def test_a_silent_broker_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_state, "DIRECTORY_SECONDS", 0.01)
    state = await read_state(OneTopic(silent=2))  # type: ignore[arg-type]
    assert state.directories.keys() == {1}
    assert state.brokers.keys() == {1, 2}


class LateBroker(OneTopic):
    """An Admin that still returns the replicas of both sides of a completed reassignment, until it is called for the
    third time.
    """

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.partitions = partitions
        self.asked = 0

    async def list_partition_reassignments(self) -> dict[TopicPartition, Reassignment]:
        return {}

    async def describe_topics(self, names: list[str]) -> dict[str, Topic]:
        self.asked += 1
        late = (1, 2, 3) if self.asked < 3 else (1, 2)
        replicas = {index: late if index == 0 else (1, 2) for index in range(self.partitions)}
        return {"orders": Topic("orders", partitions={i: Partition(i, 1, replicas=r) for i, r in replicas.items()})}


@pytest.mark.parametrize(("partitions", "expected"), [(2, None), (1, {ORDERS: (1, 2)})])
async def test_a_reassignment_that_is_over_is_not_taken_for_more_replicas(
    monkeypatch: pytest.MonkeyPatch, partitions: int, expected: dict[TopicPartition, tuple[int, ...]] | None
) -> None:
    monkeypatch.setattr(cluster_state, "HEARSAY_PAUSE_SECONDS", 0.001)
    admin = LateBroker(partitions)
    state = await read_state(admin, expected)  # type: ignore[arg-type]
    assert state.assignment[ORDERS] == (1, 2)
    assert admin.asked == 3


async def test_partitions_that_stay_elsewhere_are_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_state, "HEARSAY_SECONDS", 0.003)
    monkeypatch.setattr(cluster_state, "HEARSAY_PAUSE_SECONDS", 0.001)
    admin = LateBroker(1)
    state = await read_state(admin, {ORDERS: (7, 8)})  # type: ignore[arg-type]
    assert state.assignment[ORDERS] == (1, 2)


def test_an_empty_cluster_has_no_holders() -> None:
    assert ClusterState({}, -1, {}, {}, {}).holders == set()
