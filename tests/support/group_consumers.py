"""Shared by tests of group members: creates consumers with short timeouts, and a listener that records its calls."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from oncelog.cluster import TopicPartition
from oncelog.consumer.consumer import Consumer
from oncelog.consumer.group.interest import RebalanceListener


class Listener(RebalanceListener):
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.trouble: dict[str, BaseException] = {}

    async def _call(self, what: str, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(f"{what} {len(partitions)}")
        error = self.trouble.pop(what, None)
        if error is not None:
            raise error

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await self._call("assigned", partitions)

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self._call("revoked", partitions)

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        await self._call("lost", partitions)


def consumer_of(broker: Any, fast: dict[str, int], **options: Any) -> Consumer:
    quick = {"heartbeat_interval_ms": 5, "auto_offset_reset": "earliest", **fast}
    return Consumer(broker.address, group_id="g", **{**quick, **options})


async def poll_until(consumer: Consumer, listener: Listener, *calls: str) -> None:
    async with asyncio.timeout(10):
        while listener.calls != list(calls):
            assert listener.calls == list(calls)[: len(listener.calls)]
            await consumer.poll(10)
