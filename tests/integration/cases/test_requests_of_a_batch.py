"""Counts the requests that the exactly-once sink sends for a small batch, because each request delays a micro-batch."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from typing import Any

import pytest

from oncelog.connection.transport import BrokerConnection
from oncelog_pipeline.sink import exactly_once, unnamed
from oncelog_pipeline.sink.cluster import KafkaCluster, RowProducer
from oncelog_pipeline.sink.names import Query, unnamed_query
from oncelog_pipeline.sink.operations import TakenOver
from oncelog_pipeline.sink.state import Batch, TaskMessage
from oncelog_protocol.messages.api_versions import ApiVersionsRequest

TASK_REQUESTS = 7
COMMIT_REQUESTS = 17
"""The number of requests of a commit with one broker; the first batch of a query needs more."""

UNNAMED_TASK_REQUESTS = 8
UNNAMED_COMMIT_REQUESTS = 26
"""The same for a write without a writeId, whose first batch is its only one, with the look for an earlier write of the
same rows.
"""
NO_CONNECTION = "the producers of tasks and of the query use the connections of the admin client"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the requests of the client by their name."""
    counter: Counter[str] = Counter()
    start = BrokerConnection.start

    def counted(self: BrokerConnection, request: Any, *arguments: Any, **named: Any) -> Any:
        counter[type(request).__name__] += 1
        return start(self, request, *arguments, **named)

    monkeypatch.setattr(BrokerConnection, "start", counted)
    return counter


async def task(cluster: KafkaCluster, batch: Batch, topic: str) -> TaskMessage:
    """Write one row to the topic, as a task of a batch write does."""

    async def write(producer: RowProducer) -> None:
        await producer.send(topic, b"row", partition=0)

    return await exactly_once.write_task(cluster, batch, 0, 0, batch.number, write)


def test_a_write_without_a_name_takes_few_requests(address: str, topic: str, asked: Counter[str]) -> None:
    async def play() -> None:
        async with KafkaCluster(address, task_timeout_ms=60_000) as cluster:
            for _ in range(3):  # the process has read the state topic before the last write
                run = str(uuid.uuid4())
                batch = Batch(unnamed_query(run), run, 0)
                asked.clear()
                message = await task(cluster, batch, topic)
                in_task = Counter(asked)
                asked.clear()
                await unnamed.commit(cluster, batch, [message], topic)
            assert in_task.total() <= UNNAMED_TASK_REQUESTS, in_task
            assert asked.total() <= UNNAMED_COMMIT_REQUESTS, asked
            assert not (in_task + asked)[ApiVersionsRequest.__name__], NO_CONNECTION
            assert not await cluster.states_by_name()
            with pytest.raises(TakenOver, match="the write has ended"):
                await task(cluster, batch, topic)

    asyncio.run(play())


def test_a_batch_of_one_task_takes_few_requests(address: str, topic: str, asked: Counter[str]) -> None:
    async def play() -> None:
        async with KafkaCluster(address, task_timeout_ms=60_000) as cluster:
            for number in range(6):
                batch = Batch(Query(topic), "12345678-run", number)
                asked.clear()
                message = await task(cluster, batch, topic)
                in_task = Counter(asked)
                asked.clear()
                await exactly_once.commit(cluster, batch, [message])
            assert in_task.total() <= TASK_REQUESTS, in_task
            assert asked.total() <= COMMIT_REQUESTS, asked
            assert not (in_task + asked)[ApiVersionsRequest.__name__], NO_CONNECTION

    asyncio.run(play())
