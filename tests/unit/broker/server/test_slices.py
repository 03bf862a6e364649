"""Requests about very many partitions let other connections work in between, and give the same responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.storage import make_batch, open_log

from oncelog_broker.config.broker_keys import FETCH_MAX_BYTES
from oncelog_broker.replication.partition import Partition
from oncelog_broker.runtime.answers import settled
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import SLICE_SECONDS, Slices
from oncelog_broker.runtime.tasks import Deadlines, Tasks
from oncelog_broker.security.principal import ANONYMOUS
from oncelog_broker.server.kept.fetch_sessions import FetchSessions
from oncelog_broker.server.kept.refused_batches import RefusedBatches
from oncelog_broker.server.net.limits import MAX_REQUEST_ELEMENTS
from oncelog_broker.server.records import delete_records, fetch, list_offsets, offset_for_leader_epoch, produce
from oncelog_broker.server.request.context import RequestContext
from oncelog_protocol.codec import codec
from oncelog_protocol.errors import ErrorCode, KafkaError, MalformedMessage
from oncelog_protocol.messages.delete_records import DeleteRecordsRequest
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.list_offsets import ListOffsetsRequest
from oncelog_protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from oncelog_protocol.messages.produce import ProduceRequest

PARTITIONS = 20
STEPS_PER_SLICE = 4


class TickingClock(ManualClock):
    """A clock that advances by a fraction of a slice per reading, as if each partition took that time."""

    def monotonic(self) -> float:
        now = super().monotonic()
        self._monotonic = now + SLICE_SECONDS / STEPS_PER_SLICE
        return now


class OnePartition:
    """Leads partition 0 of "orders"; `others`, if set, provides the other partitions."""

    def __init__(self, partition: Partition, idle: Partition) -> None:
        self.partition = partition
        self.idle = idle
        self.others: Partition | None = None

    def leader(self, topic: str, index: int) -> Partition:
        found = self.partition if index == 0 else self.others
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found

    led_by_name = leader


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[OnePartition]:
    logs = [open_log(tmp_path / str(index)) for index in (0, 1)]
    partitions = [Partition("orders", bytes(16), index, log, broker_id=1) for index, log in enumerate(logs)]
    for partition in partitions:
        partition.lead(0, (1,))
    yield OnePartition(*partitions)
    for log in logs:
        log.close()


@pytest.fixture
def context(replicas: OnePartition) -> Any:
    clock, tasks = TickingClock(), Tasks()
    broker = SimpleNamespace(
        authorizer=None,
        clock=clock,
        replicas=replicas,
        fetch_sessions=FetchSessions(10),
        refused_batches=RefusedBatches(),
        config={FETCH_MAX_BYTES: 100_000},
        tasks=tasks,
        slices=Slices(clock, tasks),
        deadlines=Deadlines(),
        logs=SimpleNamespace(checkpoint_log_start_offsets=lambda: None),
    )
    connection: Any = SimpleNamespace(copied_answer_bytes=1_000_000, principal=ANONYMOUS)
    return RequestContext(broker, connection, 0, 9, 0, None)


async def turns_during(answer: Any) -> tuple[Any, int]:
    """Return the result, and the number of loop turns before it."""
    task = asyncio.ensure_future(settled(answer))
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return task.result(), turns


def fetch_request(*, max_wait_ms: int = 0, partitions: int = PARTITIONS) -> FetchRequest:
    topic = FetchRequest.FetchTopic
    asked = [topic.FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1000) for n in range(partitions)]
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=100_000, topics=[topic(topic="orders", partitions=asked)]
    )


def list_offsets_request() -> ListOffsetsRequest:
    topic = ListOffsetsRequest.ListOffsetsTopic
    asked = [topic.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(PARTITIONS)]
    return ListOffsetsRequest(replica_id=-1, topics=[topic(name="orders", partitions=asked)])


def epochs_request() -> OffsetForLeaderEpochRequest:
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    asked = [topic.OffsetForLeaderPartition(partition=n, leader_epoch=0) for n in range(PARTITIONS)]
    return OffsetForLeaderEpochRequest(topics=[topic(topic="orders", partitions=asked)])


def produce_request() -> ProduceRequest:
    topic = ProduceRequest.TopicProduceData
    asked = [topic.PartitionProduceData(index=n, records=memoryview(make_batch())) for n in range(PARTITIONS)]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic(name="orders", partition_data=asked)])


def delete_request() -> DeleteRecordsRequest:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    asked = [topic.DeleteRecordsPartition(partition_index=n, offset=0) for n in range(PARTITIONS)]
    return DeleteRecordsRequest(topics=[topic(name="orders", partitions=asked)], timeout_ms=1000)


@pytest.mark.parametrize(
    ("handle", "request_of", "partitions_of"),
    [
        (fetch.handle, fetch_request, lambda answer: answer.responses[0].partitions),
        (list_offsets.handle, list_offsets_request, lambda answer: answer.topics[0].partitions),
        (offset_for_leader_epoch.handle, epochs_request, lambda answer: answer.topics[0].partitions),
        (produce.handle, produce_request, lambda answer: answer.responses[0].partition_responses),
        (delete_records.handle, delete_request, lambda answer: answer.topics[0].partitions),
    ],
    ids=["fetch", "list offsets", "epochs", "produce", "delete records"],
)
async def test_a_large_fetch_reads_partition_after_partition(
    context: Any, handle: Callable[..., Any], request_of: Callable[[], Any], partitions_of: Callable[[Any], list[Any]]
) -> None:
    answer, turns = await turns_during(handle(request_of(), context))
    codes = [partition.error_code for partition in partitions_of(answer)]
    assert codes == [0] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (PARTITIONS - 1)
    assert turns >= PARTITIONS // (STEPS_PER_SLICE + 1)


async def test_a_large_fetch_misses_nothing_that_comes_while_it_is_read(replicas: OnePartition, context: Any) -> None:
    """An append between the fetch's read of a partition and the beginning of its wait must still wake the fetch."""
    replicas.others = replicas.idle
    answer = asyncio.ensure_future(settled(fetch.handle(fetch_request(max_wait_ms=600_000), context)))
    assert not replicas.partition.purgatory.fetches
    replicas.partition.append(memoryview(make_batch()), required_acks=1)
    async with asyncio.timeout(10):
        response = await answer
    assert any(partition.records for partition in response.responses[0].partitions)
    assert not replicas.partition.purgatory.fetches
    await context.services.tasks.close()


async def test_a_large_fetch_waits_and_is_answered_by_an_append(replicas: OnePartition, context: Any) -> None:
    replicas.others = replicas.idle
    answer = asyncio.ensure_future(settled(fetch.handle(fetch_request(max_wait_ms=600_000), context)))
    async with asyncio.timeout(10):
        while not replicas.partition.purgatory.fetches:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        replicas.partition.append(memoryview(make_batch()), required_acks=1)
        response = await answer
    assert response.responses[0].partitions[0].records
    await context.services.tasks.close()


async def test_a_client_that_goes_leaves_no_large_fetch_behind(replicas: OnePartition, context: Any) -> None:
    replicas.others = replicas.idle
    answer = fetch.handle(fetch_request(max_wait_ms=600_000), context)
    assert isinstance(answer, asyncio.Future)
    async with asyncio.timeout(10):
        while not replicas.partition.purgatory.fetches:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    answer.cancel()
    async with asyncio.timeout(10):
        while replicas.partition.purgatory.fetches:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    assert answer.cancelled()


async def test_a_large_fetch_that_fails_after_its_wait_is_answered(
    replicas: OnePartition, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas.others = replicas.idle
    answer = asyncio.ensure_future(settled(fetch.handle(fetch_request(max_wait_ms=600_000), context)))

    def leader(topic: str, index: int) -> Partition:
        if index == PARTITIONS - 1:
            raise RuntimeError("for this test")
        return replicas.partition

    async with asyncio.timeout(10):
        while not replicas.partition.purgatory.fetches:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        monkeypatch.setattr(replicas, "leader", leader)
        replicas.partition.append(memoryview(make_batch()), required_acks=1)
        with pytest.raises(RuntimeError):
            await answer
    await context.services.tasks.close()


def test_a_request_of_more_elements_than_anybody_has_partitions_is_malformed() -> None:
    request = fetch_request(partitions=MAX_REQUEST_ELEMENTS + 1)
    data = codec(FetchRequest, 12).encode(request)
    with pytest.raises(MalformedMessage):
        codec(FetchRequest, 12).decode(memoryview(data), max_elements=MAX_REQUEST_ELEMENTS)
