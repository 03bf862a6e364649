"""Tests that the records of one client are read byte for byte by all others, with every codec and in every
direction.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aiokafka_client import Aiokafka
from client_contract import varied_records
from foreign_clients import COMPRESSIONS, ForeignClient
from kafka_python_client import KafkaPython
from librdkafka_client import Librdkafka

KINDS = (Librdkafka, Aiokafka, KafkaPython)


@pytest.fixture(scope="module")
def clients(address: str) -> Iterator[dict[str, ForeignClient]]:
    clients: dict[str, ForeignClient] = {kind.name: kind(address) for kind in KINDS}
    yield clients
    for client in clients.values():
        client.close()


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("writer", [kind.name for kind in KINDS])
def test_each_client_reads_records_of_the_others(
    clients: dict[str, ForeignClient], topic: str, writer: str, compression: str | None
) -> None:
    clients["librdkafka"].create_topic(topic)
    records = varied_records(clients[writer], 24)
    clients[writer].produce(topic, records, compression=compression)
    expected = [(r.key, r.value, r.headers, r.timestamp_ms) for r in records]
    for reader in clients.values():
        received = reader.consume(topic, len(records))
        assert [(r.key, r.value, r.headers, r.timestamp_ms) for r in received] == expected, reader.name


def test_batches_of_all_codecs_follow_each_other(clients: dict[str, ForeignClient], topic: str) -> None:
    clients["librdkafka"].create_topic(topic)
    expected = []
    for writer in clients.values():
        for compression in COMPRESSIONS:
            records = varied_records(writer, 5)
            clients[writer.name].produce(topic, records, compression=compression)
            expected += [(r.key, r.value, r.headers) for r in records]
    for reader in clients.values():
        assert [record.content for record in reader.consume(topic, len(expected))] == expected, reader.name
