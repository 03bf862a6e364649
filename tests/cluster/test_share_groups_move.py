"""Tests share groups (KIP-932) whose share-partition leader and share coordinator are killed while members
acknowledge.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

from replicated_cluster import ReplicatedCluster
from share_members import Group

from oncelog_broker.metadata.topic_names import SHARE_GROUP_STATE

PARTITIONS = 2


async def test_no_record_is_lost_or_accepted_twice_when_its_leader_and_its_share_coordinator_are_killed(
    cluster: ReplicatedCluster, topic: str
) -> None:
    await asyncio.to_thread(cluster.create_topic, topic, (1, 2, 3), (2, 3, 1))
    group = Group(cluster.addresses, topic, PARTITIONS)
    await group.begin()
    async with AsyncExitStack() as stack:
        members = await stack.enter_async_context(asyncio.TaskGroup())
        for _ in range(2):
            members.create_task(group.consume())
        await group.produce()
        await group.until_all_are_delivered()
        for led_topic in (topic, SHARE_GROUP_STATE):
            killed = cluster.part(led_topic).leader
            producing = asyncio.create_task(group.produce())
            await asyncio.to_thread(cluster.kill, killed)
            await asyncio.to_thread(partial(cluster.until_led, led_topic, but_by=killed))
            await producing
            await group.until_all_are_delivered()
            await asyncio.to_thread(cluster.mend)
        await group.until_nothing_lags()
        group.is_over.set()
    group.check()
