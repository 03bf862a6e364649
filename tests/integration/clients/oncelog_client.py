"""Implements the tests' client interface with oncelog's own client, on a separate event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from foreign_clients import BROKERS, TIMEOUT_SECONDS, ForeignClient, Placed, Received, Record, Refused

from oncelog import Admin, Consumer, KafkaError, NewTopic, Producer, TopicPartition
from oncelog.admin.resources import ConfigResource
from oncelog.producer.partitioner import partition_for_key

T = TypeVar("T")

TIMEOUT_MS = int(TIMEOUT_SECONDS * 1000)


class Oncelog(ForeignClient):
    name = "oncelog"

    def __init__(self, address: str) -> None:
        self._address = address
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            return await asyncio.wait_for(work, TIMEOUT_SECONDS)

        try:
            return self._runner.run(bounded())
        except KafkaError as error:
            raise Refused(error.code, error) from error

    def _with_admin(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        async def call() -> T:
            async with Admin(self._address, default_api_timeout_ms=TIMEOUT_MS) as admin:
                return await work(admin)

        return self.run(call())

    def _with_consumer(self, work: Callable[[Consumer], Awaitable[T]], **settings: Any) -> T:
        async def call() -> T:
            async with Consumer(
                self._address,
                auto_offset_reset="none",
                max_partition_fetch_bytes=4_000_000,
                allow_auto_create_topics=False,
                **settings,
            ) as consumer:
                return await work(consumer)

        return self.run(call())

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
            async with Producer(
                self._address,
                acks=acks,
                enable_idempotence=idempotent,
                compression_type=compression or "none",
                linger_ms=50,
                batch_size=4_000_000,
                max_request_size=4_000_000,
            ) as producer:
                futures = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition=partition,
                        timestamp_ms=record.timestamp_ms,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                sent = await asyncio.gather(*futures)
            return [Placed(metadata.partition, metadata.offset) for metadata in sent]

        return self.run(call())

    def consume(
        self, topic: str, count: int, *, partition: int = 0, offset: int = 0, isolation: str = "read_uncommitted"
    ) -> list[Received]:
        source = TopicPartition(topic, partition)

        async def read(consumer: Consumer) -> list[Received]:
            consumer.assign([source])
            consumer.seek(source, offset)
            received: list[Received] = []
            while len(received) < count:
                found = await consumer.poll(TIMEOUT_MS, count - len(received))
                received += [_received(record) for records in found.values() for record in records]
            return received

        return self._with_consumer(read, isolation_level=isolation)

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        source = TopicPartition(topic, partition)

        async def ask(consumer: Consumer) -> tuple[int, int]:
            begin = await consumer.beginning_offsets([source])
            return begin[source], (await consumer.end_offsets([source]))[source]

        return self._with_consumer(ask)

    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        source = TopicPartition(topic, partition)

        async def ask(consumer: Consumer) -> int | None:
            found = (await consumer.offsets_for_times({source: timestamp_ms}))[source]
            return None if found is None else found.offset

        return self._with_consumer(ask)

    def partition_for(self, key: bytes, partitions: int) -> int:
        return partition_for_key(key, partitions)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = BROKERS,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        topic = NewTopic(name, partitions, replication_factor, dict(configs or {}))
        self._with_admin(lambda admin: admin.create_topics([topic], validate_only=validate_only))

    def delete_topic(self, name: str) -> None:
        self._with_admin(lambda admin: admin.delete_topics([name]))

    def topics(self) -> set[str]:
        return set(self._with_admin(lambda admin: admin.list_topics(include_internal=True)))

    def partition_count(self, topic: str) -> int:
        return len(self._with_admin(lambda admin: admin.describe_topics([topic]))[topic].partitions)

    def create_partitions(self, topic: str, total: int) -> None:
        self._with_admin(lambda admin: admin.create_partitions({topic: total}))

    def configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource.topic(topic)
        entries = self._with_admin(lambda admin: admin.describe_configs([resource]))[resource]
        return {name: entry.value for name, entry in entries.items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._with_admin(lambda admin: admin.alter_configs({ConfigResource.topic(topic): dict(configs)}))

    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        source = TopicPartition(topic, partition)
        return self._with_admin(lambda admin: admin.delete_records({source: before_offset}))[source]

    def brokers(self) -> list[tuple[int, str, int]]:
        cluster = self._with_admin(lambda admin: admin.describe_cluster())
        return [(broker.node_id, broker.host, broker.port) for broker in cluster.brokers]

    def close(self) -> None:
        self._runner.close()


def _received(record: Any) -> Received:
    return Received(
        record.partition,
        record.offset,
        record.timestamp_ms,
        record.timestamp_type,
        record.key,
        record.value,
        tuple((name, value) for name, value in record.headers),
    )
