"""Tests share groups (KIP-932) whose share-partition leader and share coordinator are killed while members
acknowledge.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial

from replicated_cluster import ReplicatedCluster

from oncelog import Admin, Producer, ShareConsumer
from oncelog.admin import AlterConfig, ConfigResource
from oncelog_broker.metadata.topic_names import SHARE_GROUP_STATE

Key = tuple[int, int]
"""Partition and offset of a record."""

PARTITIONS = 2
RECORDS_BETWEEN_KILLS = 60
SURELY_SECONDS = 100


class Group:
    """A share group of two members, and a record of what the members did. `accepted` counts for each record how many
    acceptances were confirmed.
    """

    def __init__(self, cluster: ReplicatedCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.produced: set[Key] = set()
        self.delivered: set[Key] = set()
        self.accepted: Counter[Key] = Counter()
        self.is_over = asyncio.Event()
        self.has_polled = asyncio.Event()

    async def produce(self) -> None:
        """Append records while members read."""
        async with Producer(self.cluster.addresses) as producer:
            sent = [
                await producer.send(self.topic, b"%d" % number, partition=number % PARTITIONS)
                for number in range(RECORDS_BETWEEN_KILLS)
            ]
            for each in sent:
                place = await each
                self.produced.add((place.partition, place.offset))

    async def consume(self) -> None:
        """Run one member, which accepts each record, and count the records whose acceptance the leader has
        confirmed.
        """
        async with ShareConsumer(
            self.cluster.addresses, group_id=self.topic, share_acknowledgement_mode="explicit"
        ) as consumer:
            consumer.subscribe([self.topic])
            while not self.is_over.is_set():
                records = await consumer.poll(200)
                self.has_polled.set()
                for record in records:
                    self.delivered.add((record.partition, record.offset))
                    record.accept()
                outcomes = await consumer.commit()
                confirmed = {where.partition for where, error in outcomes.items() if error is None}
                self.accepted.update((each.partition, each.offset) for each in records if each.partition in confirmed)

    async def until_all_are_delivered(self) -> None:
        async with asyncio.timeout(SURELY_SECONDS):
            while not self.delivered >= self.produced:
                await self.next_poll()

    async def until_nothing_lags(self) -> None:
        async with asyncio.timeout(SURELY_SECONDS):
            while await self.lag():
                await self.next_poll()

    async def next_poll(self) -> None:
        self.has_polled.clear()
        await self.has_polled.wait()

    async def lag(self) -> int:
        async with Admin(self.cluster.addresses) as admin:
            offsets = (await admin.shares.offsets(self.topic)).values()
        return sum(RECORDS_BETWEEN_KILLS if each.lag is None else each.lag for each in offsets)


async def test_no_record_is_lost_or_accepted_twice_when_its_leader_and_its_share_coordinator_are_killed(
    cluster: ReplicatedCluster, topic: str
) -> None:
    await asyncio.to_thread(cluster.create_topic, topic, (1, 2, 3), (2, 3, 1))
    async with Admin(cluster.addresses) as admin:
        earliest = AlterConfig("share.auto.offset.reset", "earliest")
        await admin.incremental_alter_configs({ConfigResource.group(topic): [earliest]})
    group = Group(cluster, topic)
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
    assert group.delivered == group.produced
    assert [key for key, times in group.accepted.items() if times > 1] == []
