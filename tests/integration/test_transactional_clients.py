"""Transactions of librdkafka, kafka-python and aiokafka: each writes, each reads what is committed and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aiokafka_client import Aiokafka
from foreign_clients import ForeignClient
from kafka_python_client import KafkaPython
from librdkafka_client import Librdkafka
from transactional_clients import PRODUCERS, Fenced, TransactionalProducer, committed_offset, new_id

READERS: dict[str, type[ForeignClient]] = {
    client.name: client
    for client in (Librdkafka, KafkaPython, Aiokafka)  # type: ignore[type-abstract]
}


@pytest.fixture(params=list(PRODUCERS))
def library(request: pytest.FixtureRequest) -> type[TransactionalProducer]:
    return PRODUCERS[request.param]


@pytest.fixture
def producer(library: type[TransactionalProducer], address: str) -> Iterator[TransactionalProducer]:
    made = library(address, new_id())
    yield made
    made.close()


@pytest.fixture
def reader(address: str) -> Iterator[Librdkafka]:
    client = Librdkafka(address)
    yield client
    client.close()


def values(client: ForeignClient, topic: str, count: int, **options: str) -> list[bytes | None]:
    return [record.value for record in client.consume(topic, count, **options)]  # type: ignore[arg-type]


def test_each_library_reads_exactly_what_was_committed(
    producer: TransactionalProducer, reader: Librdkafka, address: str, topic: str
) -> None:
    reader.create_topic(topic)
    for number in range(6):
        producer.begin()
        producer.send(topic, b"%d" % number)
        producer.send(topic, b"%d again" % number)
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    expected = [b"0", b"0 again", b"2", b"2 again", b"4", b"4 again"]
    for client in (made(address) for made in READERS.values()):
        try:
            assert values(client, topic, 6, isolation="read_committed") == expected
            assert len(values(client, topic, 12)) == 12
        finally:
            client.close()


def test_s41_two_producers_with_one_transactional_id(
    producer: TransactionalProducer, library: type[TransactionalProducer], reader: Librdkafka, address: str, topic: str
) -> None:
    reader.create_topic(topic)
    producer.begin()
    producer.send(topic, b"of the old one, open")
    new = library(address, producer.transactional_id)
    new.begin()
    new.send(topic, b"of the new one")
    with pytest.raises(Fenced):
        producer.commit()
    new.commit()
    new.close()
    assert values(reader, topic, 1, isolation="read_committed") == [b"of the new one"]


def test_s37_s60_offsets_are_committed_with_the_records(
    producer: TransactionalProducer, reader: Librdkafka, address: str, topic: str
) -> None:
    reader.create_topic(topic)
    for offset, commits in ((3, True), (5, False)):
        producer.begin()
        producer.send(topic, b"%d" % offset)
        producer.send_offset(topic, offset, topic)
        if commits:
            producer.commit()
        else:
            producer.abort()
        assert committed_offset(address, topic, topic) == 3
    assert values(reader, topic, 1, isolation="read_committed") == [b"3"]


def test_transactions_over_many_partitions(
    producer: TransactionalProducer, reader: Librdkafka, address: str, topic: str
) -> None:
    reader.create_topic(topic, 8)
    for commits in (False, True):
        producer.begin()
        for partition in range(8):
            producer.send(topic, b"kept" if commits else b"dropped", partition)
        if commits:
            producer.commit()
        else:
            producer.abort()
    for partition in range(8):
        (record,) = reader.consume(topic, 1, partition=partition, isolation="read_committed")
        assert record.value == b"kept"
