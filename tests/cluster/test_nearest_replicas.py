"""Tests KIP-392 live: consumers that name their rack read from the follower in that rack, and from other brokers when
that follower is down.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from final_state import read_committed, settle_and_check
from foreign_clients import Record, eventually
from librdkafka_client import Librdkafka
from recording_clients import PRODUCERS, Loop
from replicated_cluster import BROKERS, ReplicatedCluster

from oncelog import Consumer, TopicPartition
from oncelog.consumer.fetcher import Fetcher
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

RACKS = {node_id: f"rack-{node_id}" for node_id in BROKERS}
RECORDS, SIZE = 100, 1000
TRANSACTIONS = 4
"""The number of transactions before a broker is killed, and again the number after the kill."""
ATTEMPTS = 5
"""The number of attempts: if a busy machine keeps a replica from fetching, the replica leaves the ISR, and no consumer
reads from it until it has returned.
"""


@pytest.fixture(scope="module")
def racks_of_module(
    chroots: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReplicatedCluster]:
    settings = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    cluster = ReplicatedCluster(tmp_path_factory.mktemp("racks"), chroots(), settings)
    for node_id, rack in RACKS.items():
        cluster.brokers[node_id].settings["broker.rack"] = rack
    with cluster:
        yield cluster
    cluster.check_logs()


@pytest.fixture
def racks(racks_of_module: ReplicatedCluster) -> ReplicatedCluster:
    """A cluster of three brokers, each in a different rack."""
    racks_of_module.mend()
    return racks_of_module


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Count how many bytes of records oncelog's consumers receive from each broker."""
    read, counts = Fetcher._read, Counter[int]()

    def counting(self: Fetcher, node_id: int, position: Any, seeks: int, offset: int, data: Any) -> bool:
        counts[node_id] += len(data.records or b"")
        return read(self, node_id, position, seeks, offset, data)

    monkeypatch.setattr(Fetcher, "_read", counting)
    return counts


def follower_of(cluster: ReplicatedCluster, topic: str) -> int:
    """Return a follower that is not the controller, so that its death affects nothing else."""
    part = cluster.until_led(topic)
    return next(node_id for node_id in part.replicas if node_id not in (part.leader, cluster.controller()))


def write(cluster: ReplicatedCluster, topic: str) -> None:
    client = Librdkafka(cluster.addresses)
    client.produce(topic, [Record(b"%d" % number * SIZE) for number in range(RECORDS)])
    client.close()


def consumer_at(cluster: ReplicatedCluster, node_id: int, **options: Any) -> Consumer:
    return Consumer(
        cluster.addresses,
        client_rack=RACKS[node_id],
        auto_offset_reset="none",
        allow_auto_create_topics=False,
        request_timeout_ms=5000,
        **options,
    )


async def read_to(consumer: Consumer, source: TopicPartition, end: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while await consumer.position(source) < end:
        for records in (await consumer.poll(1000)).values():
            found += [(record.offset, bytes(record.value or b"")) for record in records]
    return found


def test_our_client_reads_from_the_follower_in_its_rack(
    racks: ReplicatedCluster, topic: str, fetched: Counter[int]
) -> None:
    racks.create_topic(topic, BROKERS)
    write(racks, topic)
    near = follower_of(racks, topic)

    async def read() -> list[tuple[int, bytes]]:
        source = TopicPartition(topic, 0)
        async with consumer_at(racks, near) as consumer:
            consumer.assign([source])
            consumer.seek(source, 0)
            return await read_to(consumer, source, RECORDS)

    for _ in range(ATTEMPTS):
        fetched.clear()
        assert [offset for offset, _ in asyncio.run(read())] == list(range(RECORDS))
        if fetched.total() == fetched[near]:
            break
        racks.until_whole(topic)
    assert fetched.total() == fetched[near] >= RECORDS * SIZE


def test_librdkafka_reads_from_the_follower_in_its_rack(racks: ReplicatedCluster, topic: str) -> None:
    racks.create_topic(topic, BROKERS)
    write(racks, topic)
    near = follower_of(racks, topic)
    for _ in range(ATTEMPTS):
        received = bytes_received(racks, topic, near)
        if received[near] >= RECORDS * SIZE:
            break
        racks.until_whole(topic)
    assert received[near] >= RECORDS * SIZE
    assert received.total() < 2 * RECORDS * SIZE


def bytes_received(cluster: ReplicatedCluster, topic: str, near: int) -> Counter[int]:
    """Let a librdkafka consumer in the rack of one broker read all records; return how many bytes librdkafka has
    received from each broker.
    """
    received = Counter[int]()

    def note(statistics: str) -> None:
        for broker in json.loads(statistics)["brokers"].values():
            if broker["nodeid"] >= 0:
                received[broker["nodeid"]] = broker["rxbytes"]

    client = Librdkafka(cluster.addresses, **{"client.rack": RACKS[near]})
    consumer = client.consumer(**{"statistics.interval.ms": 50, "stats_cb": note})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    offsets: list[int] = []

    def has_all() -> bool:
        offsets.extend(message.offset() for message in consumer.consume(RECORDS, 0.5) if message.error() is None)
        return len(offsets) >= RECORDS and received.total() >= RECORDS * SIZE

    eventually(has_all, "all records came")
    client.close()
    assert offsets == list(range(RECORDS))
    return received


@pytest.mark.parametrize("dies", ["leader", "nearest"])
def test_read_committed_from_a_follower_survives_a_dying_broker(
    racks: ReplicatedCluster, history: History, topic: str, fetched: Counter[int], dies: str
) -> None:
    """The consumer gets the same records in the same order as from the leader: it gets no record of an aborted
    transaction, and each other record once.
    """
    racks.create_topic(topic, BROKERS)
    near, place, source = follower_of(racks, topic), Place(topic), TopicPartition(topic, 0)
    loop = Loop()

    async def begin() -> Consumer:
        consumer = consumer_at(racks, near, isolation_level="read_committed")
        await consumer.start()
        consumer.assign([source])
        consumer.seek(source, 0)
        return consumer

    consumer = loop.run(begin())
    with PRODUCERS["oncelog"](racks.addresses, history, "anna", f"{topic}-id") as producer:
        found: list[tuple[int, bytes]] = []
        for part in range(2):
            for number in range(TRANSACTIONS):
                producer.begin()
                for _ in range(3):
                    producer.send(place)
                producer.flush()
                if number % 2:
                    producer.abort()
                else:
                    producer.commit()
            end = racks.until(lambda: _end(racks, topic), "the end is known")
            found += loop.run(read_to(consumer, source, end))
            if part == 0:
                assert fetched[near] > 0
                racks.kill(near if dies == "nearest" else racks.until_led(topic).leader)
                racks.until_led(topic)
    loop.run(consumer.close())
    assert found == loop.run(read_committed(racks.addresses, place, end))
    loop.close()
    settle_and_check(racks, history, topic)


def _end(cluster: ReplicatedCluster, topic: str) -> int:
    with cluster.client(cluster.until_led(topic).leader) as leader:
        try:
            return leader.list_offset(topic, 0)[0]
        except AssertionError:  # the broker no longer leads the partition: the caller tries again
            return 0
