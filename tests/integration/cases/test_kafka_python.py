"""Tests kafka-python against a live broker, also with the protocol versions that it uses with old brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from client_contract import ClientContract, now_ms, timed_records
from foreign_clients import BROKERS, Refused, content_of, eventually
from kafka_python_client import KafkaPython

from oncelog_protocol.errors import ErrorCode


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[KafkaPython]:
    client = KafkaPython(address)
    yield client
    client.close()


class TestKafkaPython(ClientContract):
    pass


def test_a_topic_without_partitions_is_refused(client: KafkaPython, topic: str) -> None:
    with pytest.raises(Refused) as refusal:
        client.create_topic(topic, 0)
    assert refusal.value.code == ErrorCode.INVALID_PARTITIONS


def test_configs_are_altered_one_by_one(client: KafkaPython, topic: str) -> None:
    client.create_topic(topic, configs={"retention.ms": "3600000"})
    client.alter_configs(topic, {"segment.ms": "120000"}, incremental=True)
    eventually(lambda: client.configs(topic)["segment.ms"] == "120000", "the new value is described")
    assert client.configs(topic)["retention.ms"] == "3600000"


@pytest.mark.parametrize(
    "version", [(0, 11), (1, 0), (1, 1), (2, 0), (2, 3), (2, 6), (3, 0), (3, 9), (4, 0)], ids=lambda v: f"{v[0]}.{v[1]}"
)
def test_kafka_python_works_with_versions_of_older_brokers(address: str, topic: str, version: tuple[int, int]) -> None:
    client = KafkaPython(address, api_version=version)
    try:
        client.create_topic(topic, 2, configs={"retention.ms": "3600000"})
        eventually(lambda: client.partition_count(topic) == 2, "two partitions")
        base = now_ms() - 60_000
        records = timed_records(base)
        client.produce(topic, records, partition=1, compression="lz4")
        received = client.consume(topic, 20, partition=1)
        assert [record.content for record in received] == content_of(records)
        assert client.offset_for_time(topic, base + 95, 1) == 10
        assert client.offsets(topic, 1) == (0, 20)
        assert client.delete_records(topic, 5, 1) == 5
        if version >= (1, 1):  # DescribeConfigs v0 was removed in Kafka 4
            assert client.configs(topic)["retention.ms"] == "3600000"
        if version != (3, 0):  # kafka-python requires a field that DescribeCluster v0 does not have
            assert len(client.brokers()) == BROKERS
        client.delete_topic(topic)
        eventually(lambda: topic not in client.topics(), "the topic is gone")
    finally:
        client.close()
