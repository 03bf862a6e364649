"""A broker that hangs affects only the partitions that it leads (E54). The broker accepts connections and sends no
response, like a process that is stopped, or whose machine is frozen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.fake_cluster import FakeCluster
from tests.support.virtual_time import run_virtually

from oncelog.admin import Admin
from oncelog.cluster import TopicPartition
from oncelog.connection.pool import HANGING_S
from oncelog.consumer.consumer import Consumer
from oncelog.errors import PartialFailure
from oncelog.metadata.list_offsets import LATEST_TIMESTAMP
from oncelog.producer.producer import Producer
from oncelog_protocol.messages.list_offsets import ListOffsetsRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

PLACES = [TopicPartition("topic", index) for index in range(3)]
SOON_S = 2 * HANGING_S + 1
"""Seconds within which a client notices a silent broker: once while it connects, and once for a request."""


def in_cluster(body: Callable[[FakeCluster], Awaitable[None]]) -> Callable[[], None]:
    """Run a test with three partitions, each of which another broker leads."""

    async def main() -> None:
        async with FakeCluster(partitions=3) as cluster:
            for index in range(3):
                if index:
                    cluster.lead(index + 1, partition=index)
                cluster.append(record(b"%d" % index), partition=index)
            await body(cluster)
            for broker in cluster.brokers.values():
                broker.resume()

    def test() -> None:
        run_virtually(main())

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


def record(value: bytes) -> bytes:
    return bytes(build_batch([Record(0, 1, None, value, [])]))


def now() -> float:
    return asyncio.get_running_loop().time()


async def values_until(consumer: Consumer, count: int, limit_s: float) -> list[Any]:
    values: list[Any] = []
    async with asyncio.timeout(limit_s):
        while len(values) < count:
            for records in (await consumer.poll(1_000)).values():
                values += [each.value for each in records]
    return sorted(values)


@pytest.mark.parametrize("hanging", [1, 2, 3])
def test_e54_a_consumer_starts_with_the_partitions_of_the_others(hanging: int) -> None:
    """Any bootstrap server may hang, even the one that receives the first Metadata request."""

    @in_cluster
    async def test(cluster: FakeCluster) -> None:
        cluster.brokers[hanging].pause()
        others = [b"0", b"1", b"2"]
        others.remove(b"%d" % (hanging - 1))
        for order in (1, -1):
            addresses = ",".join(cluster.addresses.split(",")[::order])
            began = now()
            async with Consumer(addresses, auto_offset_reset="earliest") as consumer:
                consumer.assign(PLACES)
                assert await values_until(consumer, 2, SOON_S) == others
            assert now() - began < 2 * SOON_S

    test()


@in_cluster
async def test_e54_a_seek_to_the_beginning_continues_where_brokers_answer(cluster: FakeCluster) -> None:
    async with Consumer(cluster.addresses, auto_offset_reset="earliest") as consumer:
        consumer.assign(PLACES)
        assert await values_until(consumer, 3, SOON_S) == [b"0", b"1", b"2"]
        cluster.brokers[2].pause()
        consumer.seek_to_beginning()
        assert await values_until(consumer, 2, 1) == [b"0", b"2"]
        consumer.seek_to_beginning(PLACES[0])  # seek while the request to broker 2 is in flight
        assert await values_until(consumer, 1, 1) == [b"0"]
        cluster.brokers[2].resume()
        assert await values_until(consumer, 1, 1) == [b"1"]


@in_cluster
async def test_e54_the_next_leader_is_asked_where_a_partition_begins(cluster: FakeCluster) -> None:
    """The late response of the hanging leader is ignored."""
    async with Consumer(cluster.addresses, auto_offset_reset="earliest", metadata_max_age_ms=2_000) as consumer:
        consumer.assign(PLACES)
        assert await values_until(consumer, 3, SOON_S) == [b"0", b"1", b"2"]
        asked, goes_on = asyncio.Event(), asyncio.Event()
        hung = cluster.brokers[2]

        async def late(request: Any) -> Any:
            asked.set()
            await goes_on.wait()
            answer = hung.on_list_offsets(request)
            answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].offset = 0, 77
            return answer

        hung.handlers[ListOffsetsRequest] = late
        consumer.seek_to_beginning(PLACES[1])
        polling = asyncio.ensure_future(values_until(consumer, 1, 20))
        await asked.wait()
        cluster.lead(3, partition=1)
        assert await polling == [b"1"]
        goes_on.set()
        await consumer.poll(1_000)
        assert await consumer.position(PLACES[1]) == 1


@in_cluster
async def test_e54_a_position_is_found_while_another_leader_hangs(cluster: FakeCluster) -> None:
    async with Consumer(cluster.addresses, auto_offset_reset="earliest") as consumer:
        consumer.assign(PLACES)
        cluster.brokers[3].pause()
        began = now()
        assert [await consumer.position(place) for place in PLACES[:2]] == [0, 0]
        assert now() - began < SOON_S


@in_cluster
async def test_e54_answers_of_other_leaders_are_not_lost(cluster: FakeCluster) -> None:
    """The timeout expires before one leader has responded, and the offsets from the other leaders are returned."""
    async with Admin(cluster.addresses, default_api_timeout_ms=5_000) as admin:
        cluster.brokers[2].pause()
        with pytest.raises(PartialFailure) as caught:
            await admin.list_offsets(dict.fromkeys(PLACES, LATEST_TIMESTAMP))
    assert list(caught.value.errors) == [PLACES[1]]
    assert {place: found.offset for place, found in caught.value.results.items()} == {PLACES[0]: 1, PLACES[2]: 1}


@in_cluster
async def test_e54_metadata_is_requested_from_another_broker(cluster: FakeCluster) -> None:
    """A broker hangs before it responds to the Metadata request for a new topic."""
    async with Consumer(cluster.addresses, auto_offset_reset="earliest") as consumer:
        cluster.view.leaders["new", 0] = (3, 5)
        hanging = [broker for broker in cluster.brokers.values() if broker.requests]
        for broker in hanging:
            broker.pause()
        began = now()
        assert await consumer.partitions_for("new") == [0]
        assert now() - began < SOON_S


@pytest.mark.parametrize("pace_s", [0.0, 0.001, 0.1])
@pytest.mark.parametrize("moment", ["before it starts", "while it sends"])
def test_e54_records_without_keys_go_to_the_other_brokers(moment: str, pace_s: float) -> None:
    """Even if records are sent very fast, records for the hanging broker do not fill buffer.memory, and records for
    other brokers do not wait.
    """

    @in_cluster
    async def test(cluster: FakeCluster) -> None:
        count = 3_000 if pace_s < 0.1 else 300
        hung = cluster.brokers[2]
        options = {"batch_size": 100, "buffer_memory": 100 * 256, "linger_ms": 5, "delivery_timeout_ms": 600_000}
        if moment == "before it starts":
            hung.pause()
        async with Producer(cluster.addresses, max_block_ms=30_000, request_timeout_ms=60_000, **options) as producer:
            began, sent = now(), []
            for number in range(count):
                if number == count // 10 and moment == "while it sends":
                    hung.pause()
                sent.append(await producer.send("topic", b"x" * 80))
                await asyncio.sleep(pace_s)
            assert now() - began < count * pace_s + 2 * SOON_S
            await asyncio.sleep(1)
            late = [future for future in sent if not future.done()]
            assert len(late) <= 128
            hung.resume()
            await asyncio.gather(*sent)
        assert sum(len(cluster.values(partition=index)) for index in range(3)) == count + 3

    test()
