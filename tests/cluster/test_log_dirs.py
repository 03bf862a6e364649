"""Tests DescribeLogDirs in a cluster: each broker reports its own directories."""

from __future__ import annotations

import asyncio

from foreign_clients import Record
from librdkafka_client import Librdkafka
from replicated_cluster import BROKERS, ReplicatedCluster

from oncelog.admin import Admin, LogDirectory
from oncelog.errors import KafkaError


def test_each_broker_has_its_replicas_in_its_directory(cluster: ReplicatedCluster, topic: str) -> None:
    """All brokers report equal sizes in bytes, because replicas are equal, and no broker reports replicas of other
    brokers.
    """
    first, second, third = BROKERS
    cluster.create_topic(topic, (first, second), (second, third))
    client = Librdkafka(cluster.addresses)
    client.produce(topic, [Record(b"a record")], partition=0)
    client.close()

    async def ask() -> dict[int, dict[str, LogDirectory | KafkaError]]:
        async with Admin(cluster.addresses) as admin:
            return await admin.describe_log_dirs()

    sizes: dict[int, dict[int, int]] = {}
    for node_id, directories in asyncio.run(ask()).items():
        ((path, directory),) = directories.items()
        assert path == str(cluster.brokers[node_id].data)
        assert isinstance(directory, LogDirectory)
        of_topic = {p.partition: each.size for p, each in directory.replicas.items() if p.topic == topic}
        assert set(of_topic) == {index for index, part in cluster.parts(topic).items() if node_id in part.replicas}
        sizes[node_id] = of_topic
    assert sizes[first][0] == sizes[second][0] > 0
    assert sizes[second][1] == sizes[third][1] == 0
