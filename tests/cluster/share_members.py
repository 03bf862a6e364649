"""Runs the members of a share group (KIP-932) and records what they did, for tests that kill brokers meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter

from oncelog import Admin, Producer, ShareConsumer
from oncelog.admin import AlterConfig, ConfigResource

Key = tuple[int, int]
"""Partition and offset of a record."""

RECORDS_BETWEEN_KILLS = 60
SURELY_SECONDS = 100


class Group:
    """A share group of two members, and a record of what the members did. `accepted` counts for each record how many
    acceptances were confirmed.
    """

    def __init__(self, addresses: str, topic: str, partitions: int) -> None:
        """`topic`: the name of the topic, and of the group."""
        self._addresses = addresses
        self.topic = topic
        self._partitions = partitions
        self.produced: set[Key] = set()
        self.delivered: set[Key] = set()
        self.accepted: Counter[Key] = Counter()
        self.is_over = asyncio.Event()
        self.has_polled = asyncio.Event()

    async def begin(self) -> None:
        """Let the group read the topic from its first record on."""
        async with Admin(self._addresses) as admin:
            earliest = AlterConfig("share.auto.offset.reset", "earliest")
            await admin.incremental_alter_configs({ConfigResource.group(self.topic): [earliest]})

    async def produce(self) -> None:
        """Append records while members read."""
        async with Producer(self._addresses) as producer:
            sent = [
                await producer.send(self.topic, b"%d" % number, partition=number % self._partitions)
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
            self._addresses, group_id=self.topic, share_acknowledgement_mode="explicit"
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
        async with Admin(self._addresses) as admin:
            offsets = (await admin.shares.offsets(self.topic)).values()
        return sum(RECORDS_BETWEEN_KILLS if each.lag is None else each.lag for each in offsets)

    def check(self) -> None:
        """Check that each record was delivered, and that no acceptance was confirmed twice."""
        assert self.delivered == self.produced
        assert [key for key, times in self.accepted.items() if times > 1] == []
