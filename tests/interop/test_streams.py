"""Kafka Streams with exactly_once_v2 on three brokers: instances and brokers are killed, and every count is exact."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from conftest import RELEASES, or_skip
from foreign_clients import eventually
from replicated_cluster import BROKERS, ReplicatedCluster
from streams_app import StreamsInstance, class_path

PARTITIONS = 3
WORDS = ("once", "and", "only", "once", "never", "twice")
LINE_EVERY_SECONDS = 0.04
STEP = 30
"""Committed copies between one blow and the next."""
WAIT_SECONDS = 90.0

Copies = dict[str, list[str]]
"""The lines of each key, in order: each key stands for one partition of the source."""


class LineWriter:
    """Writes lines until it is stopped, each once: librdkafka, idempotent, with acks=all."""

    def __init__(self, address: str, topic: str) -> None:
        self.lines: Copies = defaultdict(list)
        self.failed: list[str] = []
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "delivery.timeout.ms": 110_000, "log_level": 0}
        )
        self._stopped = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopped.wait(LINE_EVERY_SECONDS):
            key = str(number % PARTITIONS)
            line = f"line-{number} " + " ".join(WORDS[: 1 + number % len(WORDS)])
            self.lines[key].append(line)
            self._producer.produce(self._topic, line, key, partition=int(key), on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.failed.append(str(error))

    def stop(self) -> None:
        """Return when all are acknowledged."""
        self.give_up()
        self._thread.join()
        assert self._producer.flush(WAIT_SECONDS) == 0
        assert not self.failed

    def give_up(self) -> None:
        self._stopped.set()

    @property
    def counts(self) -> Counter[str]:
        return Counter(word for lines in self.lines.values() for line in lines for word in line.split(" "))


class Reader:
    """Reads what is committed, from the beginning, of all partitions of a topic."""

    def __init__(self, address: str, topic: str) -> None:
        self.read: Copies = defaultdict(list)
        self.total = 0
        self._ends: dict[int, int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "nobody",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])

    def read_on(self) -> int:
        """How many there are so far."""
        for message in self._consumer.consume(1000, 0.2):
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                self._ends[message.partition()] = message.offset()
            else:
                self.read[message.key().decode()].append(message.value().decode())
                self.total += 1
        return self.total

    def more(self, count: int) -> None:
        wanted = self.read_on() + count
        eventually(lambda: self.read_on() >= wanted, f"{count} more are committed", WAIT_SECONDS)

    def to_the_end(self, ends: dict[int, int]) -> None:
        """Up to these high watermarks: no transaction is open any more."""

        def is_there() -> bool:
            self.read_on()
            return self._ends == ends

        eventually(is_there, f"all is read up to {ends}", WAIT_SECONDS)

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def cluster(chroots: object, tmp_path: Path) -> Iterator[ReplicatedCluster]:
    with ReplicatedCluster(tmp_path, chroots()) as cluster:  # type: ignore[operator]
        yield cluster
    cluster.check_logs()


def topics_of(cluster: ReplicatedCluster) -> list[str]:
    """All there are, those of the brokers and those that Streams has made included."""
    return list(AdminClient({"bootstrap.servers": cluster.addresses}).list_topics(timeout=30).topics)


def high_watermarks(cluster: ReplicatedCluster, topic: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": cluster.addresses})
    latest = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(PARTITIONS)}
    answers = admin.list_offsets(latest, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=30)
    return {where.partition: answer.result().offset for where, answer in answers.items()}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("release", RELEASES)
def test_counts_are_exact_though_instances_and_brokers_are_killed(
    request: pytest.FixtureRequest, release: str, tmp_path: Path
) -> None:
    """3.x works by transactions V1, 4.x by V2."""
    path = or_skip(lambda: class_path(release))
    cluster: ReplicatedCluster = request.getfixturevalue("cluster")
    for name in ("app-lines", "app-copies", "app-counts"):
        cluster.create_topic(name, *(BROKERS[index:] + BROKERS[:index] for index in range(PARTITIONS)))
    writer = LineWriter(cluster.addresses, "app-lines")
    copies, counts = (Reader(cluster.addresses, f"app-{name}") for name in ("copies", "counts"))
    instances = [StreamsInstance(path, cluster.addresses, "app", tmp_path / f"instance{n}") for n in range(2)]
    try:
        writer.start()
        for instance in instances:
            instance.start()
        kill_one_after_another(cluster, instances, copies, counts)
        writer.stop()
        lines, words = sum(map(len, writer.lines.values())), writer.counts.total()
        eventually(lambda: copies.read_on() >= lines, f"{lines} lines are copied", WAIT_SECONDS)
        eventually(lambda: counts.read_on() >= words, f"{words} words are counted", WAIT_SECONDS)
        for instance in instances:
            instance.stop()
        check(cluster, writer)
    finally:
        writer.give_up()
        for instance in instances:
            if instance.is_running:
                instance.kill()
        copies.close()
        counts.close()


def kill_one_after_another(
    cluster: ReplicatedCluster, instances: list[StreamsInstance], copies: Reader, counts: Reader
) -> None:
    """Each broker, and with each an instance. Work goes on meanwhile, and the next blow falls on a whole cluster."""
    copies.more(STEP)
    counts.more(STEP)
    for number, broker in enumerate(BROKERS):
        victim = instances[number % len(instances)]
        cluster.kill(broker)
        copies.more(STEP)
        victim.kill()
        cluster.start(broker)
        copies.more(STEP)
        counts.more(STEP)
        victim.start()
        cluster.until_whole(*topics_of(cluster))


def check(cluster: ReplicatedCluster, writer: LineWriter) -> None:
    """Read anew, from the beginning to the end."""
    for name, expected in (
        ("copies", writer.lines),
        ("counts", {word: [str(n + 1) for n in range(count)] for word, count in writer.counts.items()}),
    ):
        reader = Reader(cluster.addresses, f"app-{name}")
        reader.to_the_end(high_watermarks(cluster, f"app-{name}"))
        assert reader.read == expected
        reader.close()
