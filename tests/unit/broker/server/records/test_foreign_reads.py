"""Requests of old clients and tools: old Fetch versions, and DescribeProducers sent to a follower."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.served import FOLLOWER, Client, Served
from tests.support.storage import make_batch

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_producers import DescribeProducersRequest
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.records.batch import batches
from oncelog_protocol.records.compression import Compression


@pytest.fixture(params=["producer", "zstd", "gzip"])
def compression_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def served(tmp_path: Path, compression_type: str) -> Iterator[Served]:
    made = Served(tmp_path, compression_type=compression_type)
    (partition,) = made.partitions
    partition.lead(1, (1,))
    partition.append(memoryview(make_batch(compression=Compression.ZSTD)), required_acks=1)
    yield made
    made.leave()


async def fetched(served: Served, version: int) -> Any:
    wanted = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchRequest.FetchTopic(topic="orders", topic_id=bytes(16), partitions=[wanted])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics, session_epoch=-1)
    client = Client(served)
    client.send(request, api=ApiKey.FETCH, version=version)
    ((_, response),) = await client.answered(1)
    return response.responses[0].partitions[0]


@pytest.mark.parametrize("version", [4, 9, 10, 12])
async def test_batches_in_zstd_are_sent_as_they_are_unless_the_topic_is_set_to_zstd(
    served: Served, compression_type: str, version: int
) -> None:
    answer = await fetched(served, version)
    if compression_type == "zstd" and version < 10:
        assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert not len(answer.records)
    else:
        assert answer.error_code == ErrorCode.NONE
        (batch,) = batches(bytes(answer.records))
        assert batch.compression == Compression.ZSTD


@pytest.mark.parametrize("compression_type", ["producer"], indirect=True)
@pytest.mark.parametrize("leads", [True, False])
async def test_every_replica_describes_its_producers(served: Served, leads: bool) -> None:
    (partition,) = served.partitions
    batch = make_batch(producer_id=7, producer_epoch=3, base_sequence=0)
    partition.append(memoryview(batch), required_acks=1)
    if not leads:
        partition.follow(FOLLOWER, 2)
    client = Client(served)
    asked = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name="orders", partition_indexes=[0])]
    )
    client.send(asked, api=ApiKey.DESCRIBE_PRODUCERS, version=0)
    ((_, response),) = await client.answered(1)
    (told,) = response.topics[0].partitions
    assert told.error_code == ErrorCode.NONE
    assert [(each.producer_id, each.producer_epoch) for each in told.active_producers] == [(7, 3)]
