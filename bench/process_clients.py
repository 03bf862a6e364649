"""Runs library clients with small transactions one after another, and with the same work without transactions: they
consume, process and produce one record with its offset, or commit a few records.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

WARM_UP: Final = 10
TIMEOUT_SECONDS: Final = 60.0
CLOCK: Final = time.perf_counter


class Steps(NamedTuple):
    """The seconds that each record took: `naive` with the record produced and the offset committed one after the other,
    `transactional` with both in a transaction.
    """

    naive: list[float]
    transactional: list[float]


class Commits(NamedTuple):
    """The seconds of entire transactions, of their commits, and of sending the same records without a transaction."""

    whole: list[float]
    commit: list[float]
    without: list[float]


async def oncelog_process(address: str, source: str, target: str, count: int, turns: int) -> Steps:
    from oncelog import Consumer, Producer, TopicPartition

    async with (
        Consumer(address, group_id=f"{target}-naive", auto_offset_reset="earliest", enable_auto_commit=False) as first,
        Consumer(address, group_id=f"{target}-txn", auto_offset_reset="earliest", enable_auto_commit=False) as second,
        Producer(address, enable_idempotence=False, linger_ms=0) as plain,
        Producer(address, transactional_id=target, linger_ms=0) as producer,
    ):
        first.subscribe([source])
        second.subscribe([source])

        async def next_of(consumer: Consumer) -> tuple[Any, dict[TopicPartition, int]]:
            while True:
                for partition, records in (await consumer.poll(timeout_ms=1000, max_records=1)).items():
                    return records[0], {partition: records[0].offset + 1}

        async def naive() -> float:
            record, offsets = await next_of(first)
            started = CLOCK()
            await plain.send_and_wait(target, record.value)
            await first.commit(offsets)
            return CLOCK() - started

        async def transactional() -> float:
            record, offsets = await next_of(second)
            started = CLOCK()
            async with producer.transaction():
                await producer.send(target, record.value)
                await producer.send_offsets(offsets, second.group_metadata())
            return CLOCK() - started

        return await _in_turns(naive, transactional, count, turns)


async def aiokafka_process(address: str, source: str, target: str, count: int, turns: int) -> Steps:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    def consumer(kind: str) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            source,
            bootstrap_servers=address,
            group_id=f"{target}-{kind}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    async with (
        consumer("naive") as first,
        consumer("txn") as second,
        AIOKafkaProducer(bootstrap_servers=address, acks="all", linger_ms=0) as plain,
        AIOKafkaProducer(bootstrap_servers=address, transactional_id=target, linger_ms=0) as producer,
    ):

        async def next_of(consumer: AIOKafkaConsumer) -> tuple[Any, dict[Any, int]]:
            while True:
                for partition, records in (await consumer.getmany(timeout_ms=1000, max_records=1)).items():
                    return records[0], {partition: records[0].offset + 1}

        async def naive() -> float:
            record, offsets = await next_of(first)
            started = CLOCK()
            await plain.send_and_wait(target, record.value)
            await first.commit(offsets)
            return CLOCK() - started

        async def transactional() -> float:
            record, offsets = await next_of(second)
            started = CLOCK()
            async with producer.transaction():
                await producer.send(target, record.value)
                await producer.send_offsets_to_transaction(offsets, f"{target}-txn")
            return CLOCK() - started

        return await _in_turns(naive, transactional, count, turns)


async def _in_turns(
    naive: Callable[[], Awaitable[float]], transactional: Callable[[], Awaitable[float]], count: int, turns: int
) -> Steps:
    for _ in range(WARM_UP):
        await naive()
        await transactional()
    steps = Steps([], [])
    for _ in range(turns):
        steps.naive.extend([await naive() for _ in range(count)])
        steps.transactional.extend([await transactional() for _ in range(count)])
    return steps


async def librdkafka_process(address: str, source: str, target: str, count: int, turns: int) -> Steps:
    return await asyncio.to_thread(_librdkafka_process, address, source, target, count, turns)


def _librdkafka_process(address: str, source: str, target: str, count: int, turns: int) -> Steps:
    from confluent_kafka import Consumer, Producer, TopicPartition

    def consumer(kind: str) -> Consumer:
        made = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": f"{target}-{kind}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        made.subscribe([source])
        return made

    first, second = consumer("naive"), consumer("txn")
    plain = Producer({"bootstrap.servers": address, "linger.ms": 0, "acks": "all"})
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "transactional.id": target})
    producer.init_transactions(TIMEOUT_SECONDS)

    def naive() -> float:
        message = first.poll(TIMEOUT_SECONDS)
        started = CLOCK()
        plain.produce(target, message.value())
        plain.flush(TIMEOUT_SECONDS)
        first.commit(message=message, asynchronous=False)
        return CLOCK() - started

    def transactional() -> float:
        message = second.poll(TIMEOUT_SECONDS)
        started = CLOCK()
        producer.begin_transaction()
        producer.produce(target, message.value())
        offsets = [TopicPartition(message.topic(), message.partition(), message.offset() + 1)]
        producer.send_offsets_to_transaction(offsets, second.consumer_group_metadata())
        producer.commit_transaction(TIMEOUT_SECONDS)
        return CLOCK() - started

    try:
        for _ in range(WARM_UP):
            naive()
            transactional()
        steps = Steps([], [])
        for _ in range(turns):
            steps.naive.extend([naive() for _ in range(count)])
            steps.transactional.extend([transactional() for _ in range(count)])
        return steps
    finally:
        first.close()
        second.close()


def librdkafka_commits(address: str, topic: str, partitions: int, records: int, count: int, turns: int) -> Commits:
    """Measure transactions with `records` records for each of `partitions` partitions, in turns with an idempotent
    producer that flushes the same records.
    """
    from confluent_kafka import Producer

    options = {"bootstrap.servers": address, "linger.ms": 0, "enable.idempotence": True}
    plain = Producer(options)
    producer = Producer({**options, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_SECONDS)
    value = b"v" * 100

    def send(by: Producer) -> None:
        for _ in range(records):
            for partition in range(partitions):
                by.produce(topic, value, partition=partition)

    taken = Commits([], [], [])
    for turn in range(turns + 1):
        for _ in range(count):
            begun = CLOCK()
            producer.begin_transaction()
            send(producer)
            committing = CLOCK()
            producer.commit_transaction(TIMEOUT_SECONDS)
            if turn:
                taken.whole.append(CLOCK() - begun)
                taken.commit.append(CLOCK() - committing)
        for _ in range(count):
            begun = CLOCK()
            send(plain)
            plain.flush(TIMEOUT_SECONDS)
            if turn:
                taken.without.append(CLOCK() - begun)
    return taken


PROCESS: Final[dict[str, Callable[[str, str, str, int, int], Awaitable[Steps]]]] = {
    "oncelog": oncelog_process,
    "aiokafka": aiokafka_process,
    "confluent-kafka": librdkafka_process,
}
"""The functions that run the one-record loop, by library. Their arguments are the broker's address, the input topic,
the output topic, the number of records in one turn, and the number of turns.
"""
