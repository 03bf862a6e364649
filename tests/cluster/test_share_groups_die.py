"""The kill matrix of share groups (KIP-932): a broker is killed before or after each request of a share group, as the
leader of a partition, as the share coordinator, or as the coordinator of the group, while two members acknowledge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from enum import Enum
from typing import NamedTuple

import pytest
from share_members import Group

from oncelog import Admin
from oncelog.metadata.internal_topics import partition_for
from oncelog_broker.metadata.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from oncelog_testing.cluster import Cluster, ClusterFault

PARTITIONS = 3
"""One for each broker, so that a leader writes state to a share coordinator on another broker: calls within a broker do
not reach the fail points of requests.
"""
OFFSETS_PARTITIONS = 3
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
}
STRUCK_SECONDS = 60.0
MAX_NAMES = 50


class Role(Enum):
    """The broker that is killed."""

    LEADER = "the leader of partition 0"
    SHARE_COORDINATOR = "the share coordinator"
    ANY = "whichever broker reaches the point first: the coordinator of the group"


class Cell(NamedTuple):
    """A kill of the broker with this role at a fail point. `is_first`: a group reaches it only at its start."""

    point: str
    role: Role
    is_first: bool = False

    def __str__(self) -> str:
        return self.point


CELLS = [
    Cell(f"{api}.{moment}", role, is_first)
    for api, role, is_first in (
        ("ShareGroupHeartbeat", Role.ANY, False),
        ("InitializeShareGroupState", Role.SHARE_COORDINATOR, True),
        ("ReadShareGroupState", Role.SHARE_COORDINATOR, True),
        ("ShareFetch", Role.LEADER, False),
        ("ShareAcknowledge", Role.LEADER, False),
        ("WriteShareGroupState", Role.SHARE_COORDINATOR, False),
    )
    for moment in ("request", "answer")
]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("faulty"), SETTINGS) as cluster:
        asyncio.run(share_something(cluster))  # so that the topic of the share coordinator exists
        yield cluster
        logged = [text for _, text in cluster.logged()]
    assert not any("Traceback" in text for text in logged)


async def share_something(cluster: Cluster) -> None:
    await asyncio.to_thread(cluster.create_topic, "something", PARTITIONS)
    group = Group(cluster.bootstrap_servers, "something", PARTITIONS)
    await group.begin()
    async with asyncio.TaskGroup() as members:
        members.create_task(group.consume())
        await group.produce()
        await group.until_all_are_delivered()
        group.is_over.set()


async def tidy(cluster: Cluster) -> None:
    """Start all brokers, and distribute the leaderships among them."""
    await asyncio.to_thread(cluster.mend)
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.elect_leaders()


def coordinated_elsewhere(cluster: Cluster, prefix: str) -> str:
    """Return the name of a group whose coordinator is not the share coordinator, so that the two send requests. The
    leaders of the offsets partitions must be different brokers.
    """
    coordinator = cluster.leader_of(SHARE_GROUP_STATE)
    names = (f"{prefix}-{number}" for number in range(MAX_NAMES))
    return next(
        name
        for name in names
        if cluster.leader_of(CONSUMER_OFFSETS, partition_for(name, OFFSETS_PARTITIONS)) != coordinator
    )


def arm(cluster: Cluster, cell: Cell, topic: str) -> ClusterFault:
    """Let the cell's broker die when it reaches the fail point."""
    match cell.role:
        case Role.LEADER:
            victims = [cluster[cluster.leader_of(topic)]]
        case Role.SHARE_COORDINATOR:
            victims = [cluster[cluster.leader_of(SHARE_GROUP_STATE)]]
        case Role.ANY:
            victims = list(cluster)
    return ClusterFault([victim.fail(cell.point, crash=True) for victim in victims])


def strike(cluster: Cluster, fault: ClusterFault) -> None:
    """Wait until the broker has died; return when all brokers run again."""
    fault.wait(STRUCK_SECONDS)
    cluster.mend()


@pytest.mark.soak
@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_no_record_is_lost_or_accepted_twice_whichever_step_of_a_share_group_kills_its_broker(
    faulty: Cluster, cell: Cell, topic: str
) -> None:
    await tidy(faulty)
    topic = await asyncio.to_thread(coordinated_elsewhere, faulty, topic)
    await asyncio.to_thread(faulty.create_topic, topic, PARTITIONS)
    group = Group(faulty.bootstrap_servers, topic, PARTITIONS)
    await group.begin()
    fault = await asyncio.to_thread(arm, faulty, cell, topic) if cell.is_first else None
    async with AsyncExitStack() as stack:
        members = await stack.enter_async_context(asyncio.TaskGroup())
        for _ in range(2):
            members.create_task(group.consume())
        await group.produce()
        if fault is None:
            await group.until_all_are_delivered()
            fault = await asyncio.to_thread(arm, faulty, cell, topic)
        killing = asyncio.create_task(asyncio.to_thread(strike, faulty, fault))
        await group.produce()
        await killing
        await group.produce()
        await group.until_all_are_delivered()
        await group.until_nothing_lags()
        group.is_over.set()
    group.check()
