"""Tests three broker processes on a real ZooKeeper, with three replicas of each partition: acknowledged records remain,
whichever broker dies.

The producers are librdkafka's, idempotent and with acks=all; the logs of the brokers are compared byte by byte.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from broker_cluster import BrokerCluster
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from foreign_clients import eventually

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.metadata import MetadataRequest

PARTITIONS = 3
SETTINGS = {
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "4000",
}


class Writer:
    """Produces numbers, one after another, until it is stopped."""

    def __init__(self, cluster: BrokerCluster, topic: str) -> None:
        self.topic = topic
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.addresses,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "delivery.timeout.ms": 110_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._stopped = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> Writer:
        self._thread.start()
        return self

    def _run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            self._producer.produce(
                self.topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
            )
            self._producer.poll(0.002)
            number += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged[int(message.value())] = (message.partition(), message.offset())

    def more(self, count: int = 50) -> None:
        """Return when `count` more records are acknowledged."""
        wanted = len(self.acknowledged) + count
        eventually(lambda: len(self.acknowledged) >= wanted, "more is acknowledged")

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(100) == 0
        assert not self.failed


def state_of(cluster: BrokerCluster, topic: str, asked: int) -> dict[int, tuple[int, set[int]]]:
    """Return partition -> (leader, ISR), as one broker knows them."""
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    (described,) = cluster.client(asked).call(request, ApiKey.METADATA, 9).topics
    return {each.partition_index: (each.leader_id, set(each.isr_nodes)) for each in described.partitions}


def make_topic(cluster: BrokerCluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.addresses})
    admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(60)
    for broker in cluster.brokers:
        eventually(lambda: all_in_sync(cluster, name, broker), "three replicas are in sync")  # noqa: B023


def all_in_sync(cluster: BrokerCluster, topic: str, asked: int) -> bool:
    states = state_of(cluster, topic, asked)
    return len(states) == PARTITIONS and all(isr == set(cluster.brokers) for _, isr in states.values())


def is_out(cluster: BrokerCluster, topic: str, asked: int, broker: int) -> bool:
    """Return whether a broker leads no partition and is in the ISR of no partition."""
    return all(leader > 0 and broker not in (leader, *isr) for leader, isr in state_of(cluster, topic, asked).values())


def logs_of(cluster: BrokerCluster, topic: str) -> list[dict[str, dict[str, bytes]]]:
    """Return for each broker the bytes of each log, by segment. A log without records has no entry."""
    return [
        {
            log.name: {file.name: file.read_bytes() for file in sorted(log.glob("*.log"))}
            for log in sorted(Path(broker.data).glob(f"{topic}-*"))
        }
        for broker in cluster.brokers.values()
    ]


def the_same_everywhere(cluster: BrokerCluster, topic: str) -> bool:
    first, *others = logs_of(cluster, topic)
    return len(first) >= PARTITIONS and all(other == first for other in others)


def end_of(consumer: Consumer, part: TopicPartition) -> int:
    """Return the end offset of a partition for consumers. For a while a new leader reports that it does not know the
    end offset yet (KIP-207).
    """

    def ask() -> tuple[int, int] | None:
        try:
            return consumer.get_watermark_offsets(part, timeout=30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.OFFSET_NOT_AVAILABLE:
                raise
            return None

    return eventually(ask, f"the end of {part.partition}")[1]


def read(cluster: BrokerCluster, topic: str) -> dict[tuple[int, int], int]:
    """Return (partition, offset) -> number, for all records that consumers see."""
    consumer = consumer_of(cluster, "read_uncommitted")
    try:
        parts = [TopicPartition(topic, index, 0) for index in range(PARTITIONS)]
        ends = {part.partition: end_of(consumer, part) for part in parts}
        consumer.assign(parts)
        found: dict[tuple[int, int], int] = {}
        deadline = time.monotonic() + 60
        while len(found) < sum(ends.values()) and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found[message.partition(), message.offset()] = int(message.value())
        return found
    finally:
        consumer.close()


def check(cluster: BrokerCluster, writer: Writer) -> None:
    """Assert that no acknowledged record is lost, moved or duplicated, and that the replicas are equal to the byte."""
    writer.stop()
    eventually(lambda: the_same_everywhere(cluster, writer.topic), "the replicas are the same")
    found = read(cluster, writer.topic)
    assert sorted(found.values()) == sorted(writer.acknowledged), "each once, none lost"
    for number, where in writer.acknowledged.items():
        assert found[where] == number
    for partition in range(PARTITIONS):
        order = [number for (index, _), number in sorted(found.items()) if index == partition]
        assert order == sorted(order)


@pytest.fixture(scope="module")
def replicated(new_cluster_root: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    cluster = BrokerCluster(tmp_path_factory.mktemp("replicated"), new_cluster_root, size=3, settings=SETTINGS)
    with cluster:
        yield cluster
    cluster.check_logs()


@pytest.mark.soak
def test_replicas_are_the_same_to_the_byte(replicated: BrokerCluster) -> None:
    make_topic(replicated, "plain")
    writer = Writer(replicated, "plain").start()
    writer.more(200)
    check(replicated, writer)


@pytest.mark.soak
@pytest.mark.parametrize("kills", [12])
def test_leaders_are_killed_while_records_are_acknowledged(replicated: BrokerCluster, kills: int) -> None:
    topic = f"killed-{kills}"
    make_topic(replicated, topic)
    writer = Writer(replicated, topic).start()
    for kill in range(kills):
        writer.more()
        survivor = 1 + (kill + 1) % 3
        victim = state_of(replicated, topic, survivor)[kill % PARTITIONS][0]
        if victim == survivor:
            survivor = 1 + victim % 3
        replicated.kill(victim)
        eventually(lambda: is_out(replicated, topic, survivor, victim), "others lead and are in sync")  # noqa: B023
        writer.more()
        replicated.restart(victim)
        eventually(lambda: all_in_sync(replicated, topic, survivor), "it is in sync again")  # noqa: B023
    check(replicated, writer)


@pytest.mark.soak
def test_a_follower_that_stands_still_leaves_the_isr_and_joins_it_again(replicated: BrokerCluster) -> None:
    make_topic(replicated, "paused")
    writer = Writer(replicated, "paused").start()
    writer.more()
    with replicated.paused(3):
        eventually(lambda: is_out(replicated, "paused", 1, 3), "others lead and are in sync")
        writer.more()
    eventually(lambda: all_in_sync(replicated, "paused", 1), "it is in sync again")
    writer.more()
    check(replicated, writer)


def transactional(cluster: BrokerCluster, name: str) -> Producer:
    settings = {"bootstrap.servers": cluster.addresses, "transactional.id": name, "log_level": 0}
    producer = Producer({**settings, "reconnect.backoff.max.ms": 500})
    producer.init_transactions(100)
    producer.begin_transaction()
    return producer


def consumer_of(cluster: BrokerCluster, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.addresses,
            "group.id": "committed",
            "enable.auto.commit": False,  # a group coordinator exists only after all brokers have started
            "isolation.level": isolation,
            "log_level": 0,
        }
    )


def committed(cluster: BrokerCluster, topic: str, until: bytes) -> list[bytes]:
    """Return the records of partition 0 that a read_committed consumer sees, in order, up to and including `until`."""
    consumer = consumer_of(cluster, "read_committed")
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes] = []

        def read_on() -> bool:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                values.append(message.value())
            return until in values

        eventually(read_on, "the last one is shown")
        return values
    finally:
        consumer.close()


@pytest.mark.soak
def test_a_follower_that_comes_to_lead_knows_of_each_transaction(replicated: BrokerCluster) -> None:
    """The new leader knows which transactions were committed, which were aborted, and which transaction is open and
    blocks readers.
    """
    topic = "transactions"
    make_topic(replicated, topic)

    def produce(producer: Producer, value: bytes) -> None:
        producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0

    ended, aborted = transactional(replicated, "ended"), transactional(replicated, "aborted")
    produce(ended, b"committed")
    produce(aborted, b"aborted")
    ended.commit_transaction(60)
    aborted.abort_transaction(60)
    still_open = transactional(replicated, "open")
    produce(still_open, b"open")
    plain = Producer({"bootstrap.servers": replicated.addresses, "acks": "all", "log_level": 0})
    produce(plain, b"behind")
    eventually(lambda: the_same_everywhere(replicated, topic), "the replicas are the same")

    victim = state_of(replicated, topic, 1)[0][0]
    survivor = 1 + victim % 3
    replicated.kill(victim)
    eventually(lambda: is_out(replicated, topic, survivor, victim), "others lead and are in sync")
    assert committed(replicated, topic, b"committed") == [b"committed"]
    consumer = consumer_of(replicated, "read_committed")
    stable = end_of(consumer, TopicPartition(topic, 0))
    consumer.close()
    still_open.commit_transaction(100)
    assert committed(replicated, topic, b"behind") == [b"committed", b"open", b"behind"]
    assert stable == 4, "behind the two that ended, with their markers"
    replicated.restart(victim)
    eventually(lambda: all_in_sync(replicated, topic, survivor), "it is in sync again")
    eventually(lambda: the_same_everywhere(replicated, topic), "the replicas are the same")
