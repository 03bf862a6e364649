"""Tests librdkafka, through confluent-kafka, against a live broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from client_contract import ClientContract, now_ms, timed_records
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType
from foreign_clients import TIMEOUT_SECONDS, Record, Refused, eventually
from librdkafka_client import Librdkafka

from oncelog_protocol.errors import ErrorCode


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Librdkafka]:
    client = Librdkafka(address)
    yield client
    client.close()


class TestLibrdkafka(ClientContract):
    pass


def test_configs_are_altered_one_by_one(client: Librdkafka, topic: str) -> None:
    client.create_topic(topic, configs={"retention.ms": "3600000", "cleanup.policy": "delete"})
    client.alter_configs_incrementally(
        topic,
        [("cleanup.policy", AlterConfigOpType.APPEND, "compact"), ("segment.ms", AlterConfigOpType.SET, "120000")],
    )
    eventually(lambda: client.configs(topic)["segment.ms"] == "120000", "the new value is described")
    configs = client.configs(topic)
    assert configs["retention.ms"] == "3600000", "what is not named stays"
    assert set(str(configs["cleanup.policy"]).split(",")) == {"delete", "compact"}
    client.alter_configs_incrementally(
        topic,
        [("cleanup.policy", AlterConfigOpType.SUBTRACT, "delete"), ("retention.ms", AlterConfigOpType.DELETE, "")],
    )
    eventually(lambda: client.configs(topic)["cleanup.policy"] == "compact", "the new value is described")
    assert client.configs(topic)["retention.ms"] == "604800000"
    with pytest.raises(Refused) as refusal:
        client.alter_configs_incrementally(topic, [("retention.ms", AlterConfigOpType.APPEND, "1")])
    assert refusal.value.code == ErrorCode.INVALID_CONFIG


def test_the_old_alter_configs_resets_what_it_does_not_name(client: Librdkafka, topic: str) -> None:
    client.create_topic(topic, configs={"retention.ms": "3600000"})
    client.alter_configs(topic, {"segment.ms": "120000"})
    eventually(lambda: client.configs(topic)["segment.ms"] == "120000", "the new value is described")
    assert client.configs(topic)["retention.ms"] == "604800000"


def test_a_topic_without_partitions_is_refused(client: Librdkafka, topic: str) -> None:
    client.create_topic(topic, -1, replication_factor=-1)
    assert client.partition_count(topic) == 1, "-1 is the broker's default"


def test_end_of_partition_is_signalled(client: Librdkafka, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, timed_records(now_ms()))
    consumer = client.consumer(**{"enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, 0, 18)])
        seen = []
        while not seen or seen[-1] != "end":
            message = consumer.poll(TIMEOUT_SECONDS)
            assert message is not None
            seen.append("end" if message.error() else message.offset())
    finally:
        consumer.close()
    assert seen == [18, 19, "end"]


def test_a_waiting_consumer_gets_later_records(client: Librdkafka, topic: str) -> None:
    client.create_topic(topic)
    consumer = client.consumer(**{"enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        at_end = consumer.poll(TIMEOUT_SECONDS)
        assert at_end is not None
        assert at_end.error() is not None
        client.produce(topic, [Record(b"later")])
        assert _next_record(consumer) == b"later"
    finally:
        consumer.close()


def _next_record(consumer: Consumer) -> bytes:
    while True:
        message = consumer.poll(TIMEOUT_SECONDS)
        assert message is not None
        if message.error() is None:
            return bytes(message.value())


def test_many_batches_in_flight_keep_their_order(client: Librdkafka, topic: str) -> None:
    client.create_topic(topic)
    producer = client.producer(**{"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 7})
    for index in range(1000):
        producer.produce(topic, b"%d" % index, partition=0)
        producer.poll(0)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    assert [record.value for record in client.consume(topic, 1000)] == [b"%d" % index for index in range(1000)]


@pytest.mark.parametrize("fallback", ["0.11.0", "1.0.0", "2.3.0"])
def test_librdkafka_works_without_api_versions(address: str, topic: str, fallback: str) -> None:
    client = Librdkafka(address, **{"api.version.request": False, "broker.version.fallback": fallback})
    client.create_topic(topic)
    client.produce(topic, timed_records(now_ms()), compression="gzip")
    assert len(client.consume(topic, 20)) == 20
