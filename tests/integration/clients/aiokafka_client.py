"""Implements the tests' client interface with aiokafka, on a separate event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, OffsetOutOfRangeError, for_code
from aiokafka.partitioner import murmur2
from foreign_clients import BROKERS, TIMEOUT_SECONDS, ForeignClient, Placed, Received, Record, Refused

T = TypeVar("T")

TIMEOUT_MS = int(TIMEOUT_SECONDS * 1000)


class Aiokafka(ForeignClient):
    name = "aiokafka"
    refuses_empty_record = True

    def __init__(self, address: str) -> None:
        self._common: dict[str, Any] = {"bootstrap_servers": address, "request_timeout_ms": TIMEOUT_MS}
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            return await asyncio.wait_for(work, TIMEOUT_SECONDS)

        try:
            return self._runner.run(bounded())
        except OffsetOutOfRangeError as error:  # this error class has its own constructor, which takes no number
            raise Refused(1, error) from error
        except KafkaError as error:
            raise Refused(getattr(error, "errno", -1), repr(error)) from error

    def _with_admin(self, work: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T:
        async def call() -> T:
            admin = AIOKafkaAdminClient(**self._common)
            try:
                await admin.start()
                return await work(admin)
            finally:
                await admin.close()

        return self.run(call())

    def producer(self, **settings: Any) -> AIOKafkaProducer:
        return AIOKafkaProducer(**self._common, max_batch_size=1 << 22, max_request_size=4_000_000, **settings)

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int | None = 0,
        compression: str | None = None,
        acks: int = -1,
        idempotent: bool = False,
    ) -> list[Placed]:
        async def call() -> list[Placed]:
            async with self.producer(
                acks=acks, enable_idempotence=idempotent, compression_type=compression, linger_ms=50
            ) as producer:
                futures = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition,
                        timestamp_ms=record.timestamp_ms,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                sent = await asyncio.gather(*futures)
            return [Placed(metadata.partition, metadata.offset) if metadata else Placed(-1, -1) for metadata in sent]

        return self.run(call())

    @asynccontextmanager
    async def consumer(self, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(
            **self._common,
            auto_offset_reset="none",
            enable_auto_commit=False,
            max_partition_fetch_bytes=4_000_000,
            **settings,
        )
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()

    def consume(
        self, topic: str, count: int, *, partition: int = 0, offset: int = 0, isolation: str = "read_uncommitted"
    ) -> list[Received]:
        source = TopicPartition(topic, partition)

        async def call() -> list[Received]:
            async with self.consumer(isolation_level=isolation) as consumer:
                consumer.assign([source])
                consumer.seek(source, offset)
                return [_received(await consumer.getone()) for _ in range(count)]

        return self.run(call())

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        source = TopicPartition(topic, partition)

        async def call() -> tuple[int, int]:
            async with self.consumer() as consumer:
                begin = await consumer.beginning_offsets([source])
                end = await consumer.end_offsets([source])
                return begin[source], end[source]

        return self.run(call())

    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        source = TopicPartition(topic, partition)

        async def call() -> int | None:
            async with self.consumer() as consumer:
                found = (await consumer.offsets_for_times({source: timestamp_ms}))[source]
                return None if found is None else int(found.offset)

        return self.run(call())

    def partition_for(self, key: bytes, partitions: int) -> int:
        return int((murmur2(key) & 0x7FFFFFFF) % partitions)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = BROKERS,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        topic = NewTopic(name, partitions, replication_factor, topic_configs=dict(configs or {}))
        answer = self._with_admin(lambda admin: admin.create_topics([topic], validate_only=validate_only))
        for _, code, *message in answer.topic_errors:
            _raise_for(code, message)

    def delete_topic(self, name: str) -> None:
        for _, code in self._with_admin(lambda admin: admin.delete_topics([name])).topic_error_codes:
            _raise_for(code)

    def topics(self) -> set[str]:
        return set(self._with_admin(lambda admin: admin.list_topics()))

    def partition_count(self, topic: str) -> int:
        if topic not in self.topics():  # requesting the metadata of one topic by name would create it
            raise Refused(3, topic)
        (described,) = self._with_admin(lambda admin: admin.describe_topics([topic]))
        _raise_for(described["error_code"])
        return len(described["partitions"])

    def create_partitions(self, topic: str, total: int) -> None:
        self._with_admin(lambda admin: admin.create_partitions({topic: NewPartitions(total)}))

    def configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = self._with_admin(lambda admin: admin.describe_configs([resource]))
        ((code, message, _, _, entries),) = answer.resources
        _raise_for(code, message)
        return {entry[0]: entry[1] for entry in entries}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        (answer,) = self._with_admin(lambda admin: admin.alter_configs([resource]))
        for code, message, *_ in answer.resources:
            _raise_for(code, message)

    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        source = TopicPartition(topic, partition)
        wanted = {source: RecordsToDelete(before_offset)}
        return int(self._with_admin(lambda admin: admin.delete_records(wanted))[source])

    def brokers(self) -> list[tuple[int, str, int]]:
        cluster = self._with_admin(lambda admin: admin.describe_cluster())
        return [(node["node_id"], node["host"], node["port"]) for node in cluster["brokers"]]

    def close(self) -> None:
        self._runner.close()


def _received(record: Any) -> Received:
    return Received(
        record.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        tuple((name, value) for name, value in record.headers),
    )


def _raise_for(code: int, message: object = "") -> None:
    if code:
        raise Refused(code, message or for_code(code).__name__)
