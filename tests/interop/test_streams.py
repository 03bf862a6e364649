"""Tests Kafka Streams with exactly_once_v2 on three brokers: instances and brokers are killed, and every count is
exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from conftest import RELEASES, or_skip
from exact_counts import PARTITIONS, WAIT_SECONDS, LineWriter, Reader, check
from foreign_clients import eventually
from replicated_cluster import BROKERS, ReplicatedCluster
from streams_app import StreamsInstance, class_path

STEP = 30
"""The number of committed copies between two kills."""


@pytest.fixture
def cluster(chroots: object, tmp_path: Path) -> Iterator[ReplicatedCluster]:
    with ReplicatedCluster(tmp_path, chroots()) as cluster:  # type: ignore[operator]
        yield cluster
    cluster.check_logs()


def topics_of(cluster: ReplicatedCluster) -> list[str]:
    """Return all topics, including internal topics and those that Streams creates."""
    return list(AdminClient({"bootstrap.servers": cluster.addresses}).list_topics(timeout=30).topics)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("release", RELEASES)
def test_counts_are_exact_though_instances_and_brokers_are_killed(
    request: pytest.FixtureRequest, release: str, tmp_path: Path
) -> None:
    """Kafka Streams 3.x uses transactions V1, and 4.x uses V2."""
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
        check(cluster.addresses, writer)
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
    """Kill each broker, and one instance with each broker. The applications continue to work, and each kill happens
    after the cluster is complete again.
    """
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
