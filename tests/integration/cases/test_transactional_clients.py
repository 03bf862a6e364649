"""Tests transactions of librdkafka, kafka-python, aiokafka and oncelog's client: each library writes, and each reads
exactly the committed records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka_client import Aiokafka
from foreign_clients import TIMEOUT_SECONDS, ForeignClient, Record
from kafka_python_client import KafkaPython
from librdkafka_client import Librdkafka
from oncelog_client import Oncelog
from transactional_clients import PRODUCERS, Fenced, TransactionalProducer, committed_offset, new_id

from oncelog import Consumer, ConsumerRecord, Producer
from oncelog.consume_process_produce import consume_process_produce

READERS: dict[str, type[ForeignClient]] = {
    client.name: client
    for client in (Librdkafka, KafkaPython, Aiokafka, Oncelog)  # type: ignore[type-abstract]
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


def test_s53_s54_each_library_reads_exactly_what_was_committed(
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


def test_s41_the_second_producer_with_a_transactional_id_fences_the_first(
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


def test_transactions_span_many_partitions(
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


# --- consume, process, produce with a consumer that is a member of a group (S60)

INPUTS = 20
PER_TRANSACTION = 4


def pipe_librdkafka(address: str, source: str, target: str) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": source,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": target, "linger.ms": 0})
    producer.init_transactions(TIMEOUT_SECONDS)
    consumer.subscribe([source])
    done, attempt = 0, 0
    while done < INPUTS:
        messages = consumer.consume(PER_TRANSACTION, 0.5)
        if not messages:
            continue
        attempt += 1
        producer.begin_transaction()
        for message in messages:
            assert message.error() is None
            producer.produce(target, message.value())
        following = confluent_kafka.TopicPartition(source, 0, messages[-1].offset() + 1)
        producer.send_offsets_to_transaction([following], consumer.consumer_group_metadata(), TIMEOUT_SECONDS)
        if attempt % 2:
            producer.abort_transaction(TIMEOUT_SECONDS)
            consumer.seek(confluent_kafka.TopicPartition(source, 0, messages[0].offset()))
        else:
            producer.commit_transaction(TIMEOUT_SECONDS)
            done = following.offset
    consumer.close()


def pipe_kafka_python(address: str, source: str, target: str) -> None:
    consumer = kafka.KafkaConsumer(
        source,
        bootstrap_servers=address,
        group_id=source,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    producer = kafka.KafkaProducer(bootstrap_servers=address, transactional_id=target)
    producer.init_transactions()
    where = kafka.TopicPartition(source, 0)
    done, attempt = 0, 0
    while done < INPUTS:
        records = consumer.poll(500, max_records=PER_TRANSACTION).get(where)
        if not records:
            continue
        attempt += 1
        producer.begin_transaction()
        for record in records:
            producer.send(target, record.value)
        following = records[-1].offset + 1
        offsets = {where: kafka.OffsetAndMetadata(following, "", -1)}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        if attempt % 2:
            producer.abort_transaction()
            consumer.seek(where, records[0].offset)
        else:
            producer.commit_transaction()
            done = following
    consumer.close()
    producer.close()


def pipe_aiokafka(address: str, source: str, target: str) -> None:
    async def run() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            source,
            bootstrap_servers=address,
            group_id=source,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, transactional_id=target)
        where = aiokafka.TopicPartition(source, 0)
        async with consumer, producer:
            done, attempt = 0, 0
            while done < INPUTS:
                found = await consumer.getmany(timeout_ms=500, max_records=PER_TRANSACTION)
                records = found.get(where)
                if not records:
                    continue
                attempt += 1
                await producer.begin_transaction()
                for record in records:
                    await producer.send_and_wait(target, record.value)
                following = records[-1].offset + 1
                await producer.send_offsets_to_transaction({where: following}, source)
                if attempt % 2:
                    await producer.abort_transaction()
                    consumer.seek(where, records[0].offset)
                else:
                    await producer.commit_transaction()
                    done = following

    asyncio.run(asyncio.wait_for(run(), 3 * TIMEOUT_SECONDS))


def pipe_oncelog(address: str, source: str, target: str) -> None:
    async def run() -> None:
        consumer = Consumer(
            address,
            group_id=source,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_poll_records=PER_TRANSACTION,
        )
        attempts = 0
        done = asyncio.Event()

        async def process(records: list[ConsumerRecord]) -> None:
            nonlocal attempts
            for record in records:
                await producer.send(target, record.value)
            attempts += 1
            if attempts % 2:
                await producer.flush()
                raise Refused
            if records[-1].offset == INPUTS - 1:
                done.set()

        async with consumer, Producer(address, transactional_id=target) as producer:
            consumer.subscribe([source])
            while not done.is_set():
                with suppress(Refused):
                    await consume_process_produce(consumer, producer, process, stop=done)

    asyncio.run(asyncio.wait_for(run(), 3 * TIMEOUT_SECONDS))


class Refused(Exception):
    """The application decides to abort this transaction."""


PIPES: dict[str, Callable[[str, str, str], None]] = {
    "librdkafka": pipe_librdkafka,
    "kafka-python": pipe_kafka_python,
    "aiokafka": pipe_aiokafka,
    "oncelog": pipe_oncelog,
}


@pytest.mark.parametrize("name", list(PIPES))
def test_s60_records_are_consumed_processed_and_produced_once(
    name: str, reader: Librdkafka, address: str, topic: str
) -> None:
    source, target = f"{topic}-in", f"{topic}-out"
    reader.create_topic(source)
    reader.create_topic(target)
    inputs = [b"%d" % number for number in range(INPUTS)]
    reader.produce(source, [Record(value) for value in inputs])
    PIPES[name](address, source, target)
    for client in (made(address) for made in READERS.values()):
        try:
            assert values(client, target, INPUTS, isolation="read_committed") == inputs
        finally:
            client.close()
    assert committed_offset(address, source, source) == INPUTS
