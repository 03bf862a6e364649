"""Reads the final records of a topic: the records that read_committed consumers of two libraries see, and all records
ever written.

At the end of each partition the test writes a record outside transactions. A reader that gets this record has seen all
committed records, and no transaction has remained open.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

import aiokafka
import confluent_kafka
from raw_client import PRODUCE_VERSION, RawClient, produce_request

from kill_matrix.worker import Output
from oncelog_protocol.api import ApiKey
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record, read_records

END = b"the end"
FETCH_WAIT_MS = 20
READ_SECONDS = 20.0
"""Limit in seconds for reading: a reader that has not reached the end of the partition in this time is blocked by an
open transaction.
"""


def write_values(client: RawClient, topic: str, partition: int, *values: bytes) -> None:
    """Write these values to a partition outside transactions, without a producer id."""
    batch = build_batch(Record(0, 0, None, value, []) for value in values)
    answer = client.call(produce_request(topic, partition, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


async def with_aiokafka(address: str, topic: str, partitions: int) -> list[bytes]:
    values: list[bytes] = []
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=address,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=FETCH_WAIT_MS,
    )
    async with consumer, asyncio.timeout(READ_SECONDS):
        consumer.assign([aiokafka.TopicPartition(topic, partition) for partition in range(partitions)])
        while values.count(END) < partitions:
            values.append((await consumer.getone()).value)
    return values


def _read_with_librdkafka(address: str, topic: str, partitions: int) -> list[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + READ_SECONDS
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "of no group",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": FETCH_WAIT_MS,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(partitions)])
        while values.count(END) < partitions:
            if time.monotonic() > deadline:
                raise TimeoutError
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                values.append(message.value())
    finally:
        consumer.close()
    return values


async def with_librdkafka(address: str, topic: str, partitions: int) -> list[bytes]:
    return await asyncio.to_thread(_read_with_librdkafka, address, topic, partitions)


READERS: Mapping[str, Callable[[str, str, int], Awaitable[list[bytes]]]] = {
    "aiokafka": with_aiokafka,
    "librdkafka": with_librdkafka,
}


def outputs(values: list[bytes]) -> list[Output]:
    return [Output.of(value) for value in values if value != END]


def all_written(client: RawClient, topic: str, partition: int) -> list[Output]:
    """Return all written records, including aborted records."""
    values, offset = [], 0
    while batches := client.fetch(topic, partition, offset):
        for batch in batches:
            if not batch.is_control:
                values += [bytes(record.value or b"") for record in read_records(batch)]
            offset = batch.next_offset
    return outputs(values)
