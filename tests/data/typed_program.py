"""A user's program that tests/unit/client/test_typed_options.py checks with mypy --strict. mypy must report an error on
each line that a comment marks with an error code, and on no other line. The program is never run.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable
from typing import Unpack

from oncelog import Admin, Consumer, ConsumerRecord, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from oncelog.consume_process_produce import consume_process_produce
from oncelog.typed_options import AdminOptions, ConsumerOptions, ProducerOptions

SERVERS = "127.0.0.1:9092"


async def right(token: str) -> None:
    async with Admin([SERVERS], client_id="a", default_api_timeout_ms=1_000) as admin:
        await admin.create_topics([NewTopic("in", 3, 1)])
    consumer = Consumer(SERVERS, group_id="g", enable_auto_commit=False, isolation_level="read_committed")
    async with consumer, Producer(SERVERS, transactional_id="t", acks="all", linger_ms=20) as producer:
        consumer.subscribe(["in"])

        async def process(records: list[ConsumerRecord]) -> None:
            for record in records:
                await producer.send("out", record.value, record.key)

        await consume_process_produce(consumer, producer, process)
        await consumer.commit({TopicPartition("in", 0): OffsetAndMetadata(1)})
    Producer(SERVERS, compression_type="zstd", tracing=True, sasl_oauth_token_provider=lambda: token)
    Consumer(SERVERS, partition_assignment_strategy=["sticky"], group_instance_id=os.environ.get("INSTANCE"))


class Tokens:
    async def token(self) -> str:
        return "secret"


def passed_on(**options: Unpack[ConsumerOptions]) -> Consumer:
    return Consumer(SERVERS, **options)


def from_dictionaries(admin: AdminOptions, producer: ProducerOptions) -> tuple[Admin, Producer]:
    producer["sasl_oauth_token_provider"] = Tokens()
    return Admin(SERVERS, **admin), Producer(SERVERS, **producer)


def wrong(unfinished: Awaitable[str]) -> None:
    Producer(SERVERS, linger=3)  # call-arg
    Producer(SERVERS, linger_ms="3")  # arg-type
    Producer(SERVERS, compression_type="lzma")  # arg-type
    Producer(SERVERS, acks=2)  # arg-type
    Producer(SERVERS, group_id="g")  # call-arg
    Producer(SERVERS, sasl_oauth_token_provider=unfinished)  # arg-type
    Producer(9092)  # arg-type
    Consumer(SERVERS, grup_id="x")  # call-arg
    Consumer(SERVERS, max_poll_records="many")  # arg-type
    Consumer(SERVERS, auto_offset_reset="first")  # arg-type
    Consumer(SERVERS, enable_auto_commit="no")  # arg-type
    Consumer(SERVERS, partition_assignment_strategy="range")  # arg-type
    Admin(SERVERS, transactional_id="t")  # call-arg
    passed_on(isolation="read_committed")  # call-arg
    ConsumerOptions(group_id=5)  # typeddict-item
