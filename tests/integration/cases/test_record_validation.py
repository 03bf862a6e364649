"""Tests that errors inside a batch are reported to real clients record by record, and that no other client has to wait
while a batch is checked.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from broker_process import BrokerProcess
from confluent_kafka import KafkaError, Message, Producer
from foreign_clients import eventually
from raw_client import FETCH_VERSION, PRODUCE_VERSION, RawClient, produce_request

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.api_versions import ApiVersionsRequest
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.records.batch import CRC_AT, HEADER_SIZE, batch_crc
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record

ASKED_MEANWHILE = 5


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_librdkafka_fails_just_the_records_without_a_key(broker: BrokerProcess, topic: str, codec: str) -> None:
    with RawClient(broker.port) as client:
        client.create_topic(topic, **{"cleanup.policy": "compact"})
    told: dict[int, Any] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        told[int(message.value() or b"")] = None if error is None else error.code()

    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 60_000, "compression.type": codec})
    for number in range(10):
        key = None if number in (2, 7) else b"key"
        producer.produce(topic, value=b"%d" % number, key=key, on_delivery=delivered)
    assert producer.flush(30) == 0  # flush ends the wait of linger.ms, so all ten records are in one batch
    others = KafkaError._INVALID_DIFFERENT_RECORD
    expected = {number: KafkaError.INVALID_RECORD if number in (2, 7) else others for number in range(10)}
    assert told == expected


def test_other_requests_are_answered_while_many_records_are_walked(broker: BrokerProcess, topic: str) -> None:
    """The batch has a few kilobytes of zstd and 300,000 records; only its last record has no key."""
    records = [Record(0, 0, b"k", b"", [])] * 299_999 + [Record(0, 0, None, b"", [])]
    batch = build_batch(records, compression=Compression.ZSTD)
    with RawClient(broker.port) as hostile, RawClient(broker.port) as honest:
        hostile.create_topic(topic, **{"cleanup.policy": "compact"})
        hostile.send(produce_request(topic, 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
        for _ in range(ASKED_MEANWHILE):
            honest.call(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)
        assert not hostile.is_readable(), "the walk takes longer than a few questions, which were answered meanwhile"
        (answer,) = hostile.receive().responses[0].partition_responses
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [299_999]


def test_garbage_with_a_right_checksum_is_refused(broker: BrokerProcess, topic: str) -> None:
    batch = build_batch([Record(0, 0, b"k", b"v" * 40, [])])
    batch[HEADER_SIZE:] = b"\xff" * (len(batch) - HEADER_SIZE)
    struct.pack_into(">I", batch, CRC_AT, batch_crc(batch))
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        answer = client.call(produce_request(topic, 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD
        assert client.list_offset(topic, 0)[0] == 0


def test_a_client_with_acks_0_does_not_wait_for_record_validation(broker: BrokerProcess, topic: str) -> None:
    """A producer with acks=0 may close as soon as it has sent all records; the broker still appends a batch that it is
    checking at that time.
    """
    batch = build_batch([Record(0, 0, b"k", b"", [])] * 300_000, compression=Compression.ZSTD)
    with RawClient(broker.port) as other:
        other.create_topic(topic, **{"cleanup.policy": "compact"})
        with RawClient(broker.port) as producer:
            producer.send(produce_request(topic, 0, batch, acks=0), ApiKey.PRODUCE, PRODUCE_VERSION)
        eventually(lambda: other.list_offset(topic, 0)[0] == 300_000, "all records are appended")


def test_a_client_with_acks_0_does_not_wait_for_earlier_answers(broker: BrokerProcess, topic: str) -> None:
    """The client closes its connection while its records wait in the socket behind a Fetch that waits for more bytes:
    the records are appended, and the Fetch ends.
    """
    batch = build_batch([Record(0, 0, b"k", b"", [])])
    empty = FetchRequest.FetchTopic.FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1000)
    waits = FetchRequest(
        max_wait_ms=600_000,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[empty])],
    )
    with RawClient(broker.port) as other:
        other.create_topic(topic, 2)
        with RawClient(broker.port) as producer:
            producer.send(waits, ApiKey.FETCH, FETCH_VERSION)
            for _ in range(3):
                producer.send(produce_request(topic, 0, batch, acks=0), ApiKey.PRODUCE, PRODUCE_VERSION)
        eventually(lambda: other.list_offset(topic, 0)[0] == 3, "all records are appended")
