"""Tests that Java and kafkajs read the records of librdkafka, and vice versa, with every codec."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from client_contract import need, varied_records
from foreign_clients import COMPRESSIONS, ForeignClient
from librdkafka_client import Librdkafka
from line_client import LineClient


@pytest.fixture(scope="module")
def librdkafka(address: str) -> Iterator[Librdkafka]:
    client = Librdkafka(address)
    yield client
    client.close()


def write_and_read(writer: ForeignClient, reader: ForeignClient, topic: str, compression: str | None) -> None:
    writer.create_topic(topic)
    # Some libraries cannot send null header values, so the records have only headers that the writer and the reader
    # support.
    records = varied_records(writer if not writer.sends_null_headers else reader, 24)
    writer.produce(topic, records, compression=compression)
    received = reader.consume(topic, len(records))
    expected = [(r.key, r.value, r.headers, r.timestamp_ms) for r in records]
    assert [(r.key, r.value, r.headers, r.timestamp_ms) for r in received] == expected


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_java_and_librdkafka_read_each_other(
    java: LineClient, librdkafka: Librdkafka, topic: str, compression: str | None
) -> None:
    write_and_read(java, librdkafka, topic, compression)
    write_and_read(librdkafka, java, f"{topic}-back", compression)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_kafkajs_and_librdkafka_read_each_other(
    kafkajs: LineClient, librdkafka: Librdkafka, topic: str, compression: str | None
) -> None:
    need(kafkajs, compression)
    write_and_read(kafkajs, librdkafka, topic, compression)
    write_and_read(librdkafka, kafkajs, f"{topic}-back", compression)
