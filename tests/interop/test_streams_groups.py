"""Tests Kafka Streams with `group.protocol=streams` (KIP-1071) and exactly_once_v2 on three brokers: the broker creates
the
internal topics and assigns the tasks; instances and brokers are killed, and every count is exact."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import or_skip
from exact_counts import PARTITIONS, WAIT_SECONDS, LineWriter, Reader, check
from foreign_clients import eventually
from replicated_cluster import BROKERS, ReplicatedCluster
from streams_app import StreamsInstance, class_path
from test_streams import STEP, topics_of

from oncelog.admin import Admin, ConfigResource, ResourceType
from oncelog.admin.groups import DescribedGroup
from oncelog.errors import ErrorCode, KafkaError

RELEASE = "4.3.1"
BROKER_SETTINGS = {
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "1000",
    "group.streams.heartbeat.interval.ms": "1000",
    "group.streams.initial.rebalance.delay.ms": "500",
    "group.streams.num.standby.replicas": "1",
}
STREAMS = {
    "group.protocol": "streams",
    # Settings that are removed from the application, because with this protocol the broker determines them.
    "consumer.session.timeout.ms": "",
    "consumer.heartbeat.interval.ms": "",
}
COUNT, COPY = "app-count", "app-copy"
REPARTITION, CHANGELOG = f"{COUNT}-words-repartition", f"{COUNT}-counts-changelog"


@pytest.fixture
def cluster(chroots: object, tmp_path: Path) -> Iterator[ReplicatedCluster]:
    with ReplicatedCluster(tmp_path, chroots(), BROKER_SETTINGS) as cluster:  # type: ignore[operator]
        yield cluster
    cluster.check_logs()


def described(address: str, group: str) -> DescribedGroup:
    async def ask() -> DescribedGroup:
        async with Admin(address) as admin:
            return (await admin.groups.describe([group]))[group]

    return asyncio.run(ask())


def cleanup_policies(address: str, *topics: str) -> list[str | None]:
    async def ask() -> list[str | None]:
        async with Admin(address) as admin:
            resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
            found = await admin.describe_configs(resources)
            return [found[resource]["cleanup.policy"].value for resource in resources]

    return asyncio.run(ask())


def is_settled(address: str, group: str, members: int) -> bool:
    try:
        found = described(address, group)
    except KafkaError as error:
        assert error.code is ErrorCode.GROUP_ID_NOT_FOUND
        return False  # the group does not exist, because no instance has joined yet
    return (found.group_type, found.state, len(found.members)) == ("streams", "Stable", members)


@pytest.mark.timeout(600)
def test_counts_are_exact_though_instances_and_brokers_are_killed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path = or_skip(lambda: class_path(RELEASE))
    cluster: ReplicatedCluster = request.getfixturevalue("cluster")
    for name in ("app-lines", "app-copies", "app-counts"):
        cluster.create_topic(name, *(BROKERS[index:] + BROKERS[:index] for index in range(PARTITIONS)))
    writer = LineWriter(cluster.addresses, "app-lines")
    copies, counts = (Reader(cluster.addresses, f"app-{name}") for name in ("copies", "counts"))
    instances = [StreamsInstance(path, cluster.addresses, "app", tmp_path / f"instance{n}", STREAMS) for n in range(2)]
    try:
        writer.start()
        for instance in instances:
            instance.start()
        for group in (COUNT, COPY):
            eventually(lambda group=group: is_settled(cluster.addresses, group, 2), f"{group} is stable", WAIT_SECONDS)
        members = described(cluster.addresses, COUNT).members
        tasks = sorted(task for member in members for task in member.active_tasks or ())
        assert tasks == [f"{part}_{number}" for part in (0, 1) for number in range(PARTITIONS)]
        standbys = sorted(task for member in members for task in member.standby_tasks or ())
        assert standbys == [f"1_{number}" for number in range(PARTITIONS)], "of the subtopology with state"
        assert cleanup_policies(cluster.addresses, REPARTITION, CHANGELOG) == ["delete", "compact"]
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
