"""Shared by the tests of the transactional producer: creates a producer with a small coordinator, and inspects its
requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.support.fake_transactions import FakeCoordinator

from oncelog.cluster import TopicPartition
from oncelog.errors import (
    AbortableError,
    InvalidTransactionState,
)
from oncelog.group_offsets import ConsumerGroupMetadata
from oncelog.producer.producer import Producer
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.records.batch import RecordBatch, batches

GROUP = ConsumerGroupMetadata("g", 3, "member", None)
OFFSETS = {TopicPartition("in", 0): 42}
P0 = ("topic", 0)
MANY = 10


@contextlib.asynccontextmanager
async def started(coordinator: FakeCoordinator, **options: Any) -> AsyncIterator[Producer]:
    quick = {"reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 5, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5}
    async with Producer(
        coordinator.broker.address, **{"transactional_id": "t", "linger_ms": 0, **quick, **options}
    ) as producer:
        yield producer


def batches_of(coordinator: FakeCoordinator) -> list[RecordBatch]:
    return [batch for data in coordinator.broker.logs.get(P0, []) for batch in batches(data)]


def identities(coordinator: FakeCoordinator) -> list[tuple[int, int]]:
    """Return (epoch, base sequence) of each batch in the log."""
    return [(batch.producer_epoch, batch.base_sequence) for batch in batches_of(coordinator)]


def ends(coordinator: FakeCoordinator) -> list[bool]:
    """Return for each EndTxn request whether it commits."""
    return [request.committed for request in coordinator.broker.requests_of(EndTxnRequest)]


async def commit_one(producer: Producer, value: bytes) -> None:
    async with producer.transaction():
        await producer.send("topic", value)


async def until_abortable(producer: Producer) -> None:
    async with asyncio.timeout(5):
        while True:
            try:
                await producer.send("topic", b"v")
            except InvalidTransactionState:
                await asyncio.sleep(0)  # wait: the commit is still in progress
            except AbortableError:
                return
