"""However much one client requests, other clients wait at most one turn of the loop. The tests count turns and not
seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.served import Client, Served, produce
from tests.support.storage import make_batch

from oncelog_broker.metadata.model.image import ClusterImage, PartitionState, Topic
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import SLICE_SECONDS
from oncelog_broker.server.net.limits import ELEMENTS_AT_ONCE
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.metadata import MetadataRequest

TOPICS = 200
LOOKS_PER_SLICE = 10
PIPELINED = 500


class TickingClock(ManualClock):
    """A clock that advances by a fraction of a slice per reading, as if each topic or element took that time."""

    def monotonic(self) -> float:
        now = super().monotonic()
        self._monotonic = now + SLICE_SECONDS / LOOKS_PER_SLICE
        return now


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path, clock=TickingClock())
    made.partitions[0].lead(0, (1,))
    image = ClusterImage("cluster")
    partitions = {0: PartitionState((1,), (1,), 1, 0, 0)}
    for number in range(TOPICS):
        image = image.with_topic(Topic(f"topic{number}", number.to_bytes(16), partitions))
    made.services.image = image
    made.services.metadata = SimpleNamespace(image=image)
    yield made
    made.leave()


async def turns_until(client: Client, answers: int) -> int:
    """Return the number of loop turns until this many responses have arrived."""
    turns = 0
    async with asyncio.timeout(30):
        while not client.has_answers(answers):
            await asyncio.sleep(0)
            turns += 1
    return turns


def all_topics() -> MetadataRequest:
    return MetadataRequest(topics=None)


async def test_other_clients_are_answered_at_once_while_one_pipelines_many_requests(served: Served) -> None:
    flood, honest = Client(served), Client(served)
    flood.send(*[all_topics() for _ in range(PIPELINED)], api=ApiKey.METADATA, version=9)
    for number in range(1, 51):
        before = len(flood.answers())
        honest.send(produce(bytes(make_batch()), acks=1))
        assert len(honest.answers()) == number, "in the turn in which it came"
        await asyncio.sleep(0)
        assert len(flood.answers()) - before <= 1
    assert len(flood.answers()) < PIPELINED
    assert flood.connection._answers.is_waiting
    flood.connection.connection_lost(None)


async def test_all_pipelined_requests_are_answered_in_the_end(served: Served) -> None:
    flood = Client(served)
    flood.send(*[all_topics() for _ in range(3)], api=ApiKey.METADATA, version=9)
    assert await turns_until(flood, 3) > 3 * TOPICS / LOOKS_PER_SLICE, "in slices"
    assert [number for number, _ in flood.answers()] == [0, 1, 2]
    assert all(len(response.topics) == TOPICS for _, response in flood.answers())


async def test_long_requests_of_many_connections_share_one_slice_in_a_turn(served: Served) -> None:
    """Twenty simultaneous requests take as many turns as twenty sequential ones."""
    clients = [Client(served) for _ in range(20)]
    for client in clients:
        client.send(all_topics(), api=ApiKey.METADATA, version=9)
    turns = [await turns_until(client, 1) for client in clients]
    assert sum(turns) > 20 * TOPICS / (LOOKS_PER_SLICE + 2)


async def test_a_request_of_many_elements_is_decoded_and_answered_in_slices(served: Served) -> None:
    large, honest = Client(served), Client(served)
    topic = FetchRequest.FetchTopic
    asked = [
        topic.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1000)
        for number in range(2 * ELEMENTS_AT_ONCE)
    ]
    topics = [topic(topic="orders", partitions=asked)]
    request: Any = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1, topics=topics)
    large.send_in_parts(request, api=ApiKey.FETCH, version=12)
    assert large.answers() == []
    honest.send(produce(bytes(make_batch()), acks=1))
    assert len(honest.answers()) == 1
    turns = await turns_until(large, 1)
    assert turns > 3 * 2 * ELEMENTS_AT_ONCE / (LOOKS_PER_SLICE + 2), "decoded, read and encoded"
    ((_, response),) = large.answers()
    assert len(response.responses[0].partitions) == 2 * ELEMENTS_AT_ONCE


async def test_a_malformed_request_of_many_elements_closes_the_connection(served: Served) -> None:
    client = Client(served)
    topic = FetchRequest.FetchTopic
    asked = [topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)] * (2 * ELEMENTS_AT_ONCE)
    topics = [topic(topic="orders", partitions=asked)]
    request: Any = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1, topics=topics)
    client.send_in_parts(request, api=ApiKey.FETCH, version=12, cut=8)
    async with asyncio.timeout(30):
        while not client.wire.aborted:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    assert client.answers() == []
