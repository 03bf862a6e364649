"""Leaders and brokers change while the producer and the consumer work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.fake_cluster import FakeCluster, View
from tests.support.virtual_time import run_virtually

from oncelog.admin import Admin, NewTopic
from oncelog.cluster import TopicPartition
from oncelog.config import AdminConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.consumer.consumer import Consumer
from oncelog.errors import ConnectionFailed
from oncelog.metadata.metadata import Metadata
from oncelog.producer.producer import Producer
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

T = TopicPartition("topic", 0)
EACH_ALONE = {"linger_ms": 0, "batch_size": 1}


def in_cluster(body: Callable[[FakeCluster], Awaitable[None]]) -> Callable[[], None]:
    async def main() -> None:
        async with FakeCluster() as cluster:
            await body(cluster)

    def test() -> None:
        run_virtually(main())

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


def now() -> float:
    return asyncio.get_running_loop().time()


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def value_of(consumer: Consumer) -> bytes | None:
    for _ in range(5):
        for records in (await consumer.poll(60_000)).values():
            return records[0].value
    raise AssertionError("nothing comes")


@in_cluster
async def test_order_holds_when_the_leader_dies_with_five_requests_in_flight(cluster: FakeCluster) -> None:
    """The old leader has appended three of the batches, and responded to none."""
    async with Producer(cluster.addresses, **EACH_ALONE) as producer:
        await producer.send_and_wait("topic", b"first")
        leader, heard, dying = cluster.brokers[1], [], []

        def silent(request: ProduceRequest) -> None:
            heard.append(request)
            if len(heard) <= 3:
                leader.on_produce(request)
            if len(heard) == 5:
                cluster.lead(2)
                dying.append(asyncio.ensure_future(cluster.kill(1)))

        leader.handlers[ProduceRequest] = silent
        sent = [await producer.send("topic", value) for value in numbers(10)]
        await asyncio.gather(*sent, *dying)
    assert len(heard) == 5
    assert cluster.values() == [b"first", *numbers(10)]


@in_cluster
async def test_order_holds_when_the_leader_moves_back_and_forth(cluster: FakeCluster) -> None:
    async with Producer(cluster.addresses, **EACH_ALONE) as producer:
        sent = []
        for number, value in enumerate(numbers(40)):
            sent.append(await producer.send("topic", value))
            if number % 5 == 4:
                cluster.lead(1 + number % 3)
                await asyncio.sleep(0)
        await asyncio.gather(*sent)
    assert cluster.values() == numbers(40)


@in_cluster
async def test_a_leader_that_is_named_is_asked_at_once(cluster: FakeCluster) -> None:
    """The producer sends no Metadata request and does not back off first, even if the leader was unknown (KIP-951)."""
    cluster.view.live.discard(2)
    async with Producer(
        cluster.addresses, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000, linger_ms=0
    ) as producer:
        await producer.send_and_wait("topic", b"1")
        cluster.view.live.add(2)
        cluster.lead(2)
        for broker in cluster.brokers.values():
            broker.tells = View({("topic", 0): (1, 5)}, {1, 3})
        began = now()
        await producer.send_and_wait("topic", b"2")
        assert now() - began < 1
    assert cluster.values() == [b"1", b"2"]


@in_cluster
async def test_a_consumer_goes_to_the_leader_that_is_named(cluster: FakeCluster) -> None:
    cluster.append(record(b"1"))
    slow = {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}
    async with Consumer(cluster.addresses, auto_offset_reset="earliest", **slow) as consumer:
        consumer.assign([T])
        assert await value_of(consumer) == b"1"
        cluster.lead(3)
        for broker in cluster.brokers.values():
            broker.tells = View({("topic", 0): (1, 5)}, {1, 2, 3})
        cluster.append(record(b"2"))
        began = now()
        assert await value_of(consumer) == b"2"
        assert now() - began < 2


@in_cluster
async def test_a_hanging_leader_does_not_block_its_successor(cluster: FakeCluster) -> None:
    """A Fetch to a stopped broker takes request.timeout.ms. As soon as there is another leader, the consumer fetches
    from it, and discards the late response of the former leader.
    """
    cluster.append(record(b"1"))
    async with Consumer(cluster.addresses, auto_offset_reset="earliest", metadata_max_age_ms=2_000) as consumer:
        consumer.assign([T])
        assert await value_of(consumer) == b"1"
        hanging = cluster.brokers[1]
        stopped = asyncio.Event()
        hanging.handlers[FetchRequest] = lambda _: stopped.wait()
        await consumer.poll(1_000)
        cluster.lead(2)
        cluster.append(record(b"2"))
        began = now()
        assert await value_of(consumer) == b"2"
        assert now() - began < 5
        assert await consumer.position(T) == 2


@in_cluster
async def test_a_partition_without_a_leader_delays_no_other(cluster: FakeCluster) -> None:
    cluster.view.leaders["topic", 1] = (-1, 5)
    cluster.append(record(b"1"))
    other = TopicPartition("topic", 1)
    async with Consumer(cluster.addresses, auto_offset_reset="earliest") as consumer:
        consumer.assign([T, other])
        began = now()
        assert await value_of(consumer) == b"1"
        assert now() - began < 1
        cluster.append(record(b"2"), partition=1)
        asyncio.get_running_loop().call_later(5, cluster.view.leaders.__setitem__, other, (2, 6))
        assert await value_of(consumer) == b"2"
        assert len(cluster.brokers[1].requests) < 100


@in_cluster
async def test_a_lagging_broker_is_not_asked_alone(cluster: FakeCluster) -> None:
    """The only connected broker is cut off from the cluster: it no longer leads, and does not know the new leader."""
    async with Producer(cluster.brokers[1].address, linger_ms=0) as producer:
        await producer.send_and_wait("topic", b"1")
        cluster.brokers[1].lag()
        cluster.brokers[1].handlers[ProduceRequest] = lambda request: refused(cluster, request)
        cluster.lead(2)
        began = now()
        await producer.send_and_wait("topic", b"2")
        assert now() - began < 5
    assert cluster.values() == [b"1", b"2"]


@in_cluster
async def test_metadata_of_a_lagging_broker_does_not_restore_an_old_leader(cluster: FakeCluster) -> None:
    cluster.brokers[3].lag()
    cluster.lead(2)
    config = AdminConfig(bootstrap_servers=cluster.brokers[1].address)
    pool = ConnectionPool(config)
    metadata = Metadata(pool, config)
    metadata.in_use.append(lambda: ["topic"])
    assert (await metadata.refresh()).leader("topic", 0) == 2
    for _ in range(6):
        await metadata.refresh()
        assert metadata.cluster.leader("topic", 0) == 2
    assert cluster.brokers[3].requests_of(MetadataRequest)
    await metadata.close()
    await pool.close()


@in_cluster
async def test_when_all_brokers_have_moved_the_bootstrap_servers_are_asked(cluster: FakeCluster) -> None:
    """The name of a bootstrap server now resolves to brokers that did not exist when the client started (KIP-899)."""
    cluster.view.live = {1, 2}
    bootstrap = cluster.brokers[3]
    async with Producer(f"{cluster.brokers[1].address},{bootstrap.address}", linger_ms=0) as producer:
        await producer.send_and_wait("topic", b"1")
        cluster.lead(3)
        cluster.view.live = {3}
        await cluster.brokers[1].stop()
        await cluster.brokers[2].stop()
        await producer.send_and_wait("topic", b"2")
    assert cluster.values() == [b"1", b"2"]


@in_cluster
async def test_asking_the_bootstrap_servers_again_can_be_disabled(cluster: FakeCluster) -> None:
    cluster.view.live = {1}
    config = AdminConfig(
        bootstrap_servers=f"{cluster.brokers[1].address},{cluster.brokers[3].address}",
        metadata_recovery_strategy="none",
    )
    pool = ConnectionPool(config)
    metadata = Metadata(pool, config)
    while not metadata.cluster.brokers:
        await metadata.refresh()
    await cluster.brokers[1].stop()
    await asyncio.sleep(1)
    with pytest.raises(ConnectionFailed, match="no broker can be reached"):
        await metadata.refresh()
    await metadata.close()
    await pool.close()


@in_cluster
async def test_a_cluster_that_wants_it_is_learned_from_the_bootstrap_servers(cluster: FakeCluster) -> None:
    """After a rebootstrap the client sends Metadata requests only to bootstrap servers, and not to known brokers
    (KIP-1102).
    """
    config = AdminConfig(bootstrap_servers=cluster.brokers[3].address)
    pool = ConnectionPool(config)
    metadata = Metadata(pool, config)
    await metadata.refresh()
    await pool.connection(1)
    pool.start_over()
    await metadata.refresh()
    assert not any(cluster.brokers[node_id].requests_of(MetadataRequest) for node_id in (1, 2))
    await metadata.close()
    await pool.close()


@in_cluster
async def test_the_controller_is_found_again(cluster: FakeCluster) -> None:
    """The controller responds with NOT_CONTROLLER, and is dead at the next call."""
    for node_id, broker in cluster.brokers.items():
        broker.handlers[CreateTopicsRequest] = lambda request, node_id=node_id: created(cluster, node_id, request)
    async with Admin(cluster.addresses) as admin:
        await admin.create_topics([NewTopic("a", 1)])
        cluster.view.controller = 2
        await admin.create_topics([NewTopic("b", 1)])
        cluster.view.controller = 3
        await cluster.kill(2)
        await admin.create_topics([NewTopic("c", 1)])
    assert [len(cluster.brokers[node_id].requests_of(CreateTopicsRequest)) for node_id in (1, 2, 3)] == [2, 1, 1]


def record(value: bytes) -> bytes:
    return bytes(build_batch([Record(0, 1, None, value, [])]))


def refused(cluster: FakeCluster, request: ProduceRequest) -> Any:
    """Return the refusal of a leader whose lease has ended and that does not know the new leader."""
    return cluster.brokers[1].produced(request, lambda *_: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1))


def created(cluster: FakeCluster, node_id: int, request: CreateTopicsRequest) -> Any:
    code = 0 if cluster.view.controller == node_id else ErrorCode.NOT_CONTROLLER
    answer = CreateTopicsResponse.CreatableTopicResult
    return CreateTopicsResponse(
        topics=[
            answer(name=topic.name, error_code=code, num_partitions=1, replication_factor=1) for topic in request.topics
        ]
    )
