"""Implements the tests' client interface with librdkafka, through confluent-kafka."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from foreign_clients import BROKERS, TIMEOUT_SECONDS, ForeignClient, Placed, Received, Record, Refused, eventually

TIMEOUT_MS = int(TIMEOUT_SECONDS * 1000)
NOT_THERE_YET = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)
"""Errors that a broker may return for a new topic, because it learns of the topic a moment later."""


class Librdkafka(ForeignClient):
    name = "librdkafka"

    def __init__(self, address: str, **settings: Any) -> None:
        """`settings` are passed to every client that this adapter creates."""
        self._common = {"bootstrap.servers": address, "socket.timeout.ms": TIMEOUT_MS, **settings}
        self._admin_client: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        if self._admin_client is None:
            self._admin_client = AdminClient(self._common)
        return self._admin_client

    def producer(self, **settings: Any) -> Producer:
        return Producer({**self._common, "message.timeout.ms": TIMEOUT_MS, "message.max.bytes": 4_000_000, **settings})

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
        producer = self.producer(
            **{
                "compression.type": compression or "none",
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": 100,
                "sticky.partitioning.linger.ms": 0,
            }
        )
        placed: dict[int, Placed | KafkaError] = {}
        for index, record in enumerate(records):

            def delivered(error: KafkaError | None, message: Any, index: int = index) -> None:
                offset = message.offset() if message.offset() is not None else -1
                placed[index] = error or Placed(message.partition(), -1 if offset < 0 else offset)

            options: dict[str, Any] = {} if partition is None else {"partition": partition}
            if record.timestamp_ms is not None:
                options["timestamp"] = record.timestamp_ms
            if record.headers:
                options["headers"] = list(record.headers)
            producer.produce(topic, record.value, record.key, on_delivery=delivered, **options)
        assert producer.flush(TIMEOUT_SECONDS) == 0, "librdkafka still waits for acknowledgements"
        result = []
        for index in range(len(records)):
            outcome = placed[index]
            if isinstance(outcome, KafkaError):
                raise Refused(outcome.code(), outcome.str())
            result.append(outcome)
        return result

    def consumer(self, **settings: Any) -> Consumer:
        return Consumer(
            {
                **self._common,
                "group.id": "unused: partitions are assigned by hand",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": 4_000_000,
                **settings,
            }
        )

    def consume(
        self, topic: str, count: int, *, partition: int = 0, offset: int = 0, isolation: str = "read_uncommitted"
    ) -> list[Received]:
        consumer = self.consumer(**{"isolation.level": isolation})
        try:
            consumer.assign([TopicPartition(topic, partition, offset)])
            received: list[Received] = []
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while len(received) < count and time.monotonic() < deadline:
                received += [received_from(message) for message in consumer.consume(count - len(received), 1.0)]
        finally:
            consumer.close()
        assert len(received) == count, f"{len(received)} of {count} records came"
        return received

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        return self._offset(topic, partition, OffsetSpec.earliest()), self._offset(
            topic, partition, OffsetSpec.latest()
        )

    def _offset(self, topic: str, partition: int, spec: OffsetSpec) -> int:
        """Request an offset, and retry while the partition has no leader yet, because librdkafka leaves such retries to
        its caller.
        """
        asked = TopicPartition(topic, partition)

        def ask() -> Any:
            futures = self.admin.list_offsets(
                {asked: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=TIMEOUT_SECONDS
            )
            try:
                return _result(futures[asked])
            except Refused as refusal:
                if refusal.code not in NOT_THERE_YET:
                    raise
                return None

        return int(eventually(ask, f"{topic}-{partition} has a leader").offset)

    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        consumer = self.consumer()
        try:
            (found,) = consumer.offsets_for_times(
                [TopicPartition(topic, partition, timestamp_ms)], timeout=TIMEOUT_SECONDS
            )
        finally:
            consumer.close()
        return None if found.offset == OFFSET_END else int(found.offset)

    def partition_for(self, key: bytes, partitions: int) -> int:
        return zlib.crc32(key) % partitions  # librdkafka's default partitioner, "consistent_random"

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = BROKERS,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        topic = NewTopic(name, partitions, replication_factor, config=dict(configs or {}))
        _result(self.admin.create_topics([topic], validate_only=validate_only, request_timeout=TIMEOUT_SECONDS)[name])

    def delete_topic(self, name: str) -> None:
        _result(self.admin.delete_topics([name], request_timeout=TIMEOUT_SECONDS)[name])

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=TIMEOUT_SECONDS).topics)

    def partition_count(self, topic: str) -> int:
        metadata = self.admin.list_topics(timeout=TIMEOUT_SECONDS).topics.get(topic)
        if metadata is None:
            raise Refused(KafkaError.UNKNOWN_TOPIC_OR_PART, topic)
        return len(metadata.partitions)

    def create_partitions(self, topic: str, total: int) -> None:
        _result(self.admin.create_partitions([NewPartitions(topic, total)], request_timeout=TIMEOUT_SECONDS)[topic])

    def configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = _result(self.admin.describe_configs([resource], request_timeout=TIMEOUT_SECONDS)[resource])
        return {name: entry.value for name, entry in found.items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config=dict(configs))
        with pytest.deprecated_call():  # the client recommends the incremental API, but brokers must support both
            futures = self.admin.alter_configs([resource], request_timeout=TIMEOUT_SECONDS)
        _result(futures[resource])

    def alter_configs_incrementally(self, topic: str, changes: Sequence[tuple[str, AlterConfigOpType, str]]) -> None:
        entries = [ConfigEntry(name, value, incremental_operation=operation) for name, operation, value in changes]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        _result(self.admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_SECONDS)[resource])

    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        asked = TopicPartition(topic, partition, before_offset)
        return int(_result(self.admin.delete_records([asked], request_timeout=TIMEOUT_SECONDS)[asked]).low_watermark)

    def brokers(self) -> list[tuple[int, str, int]]:
        cluster = _result(self.admin.describe_cluster(request_timeout=TIMEOUT_SECONDS))
        return [(node.id, node.host, node.port) for node in cluster.nodes]

    def close(self) -> None:
        self._admin_client = None


def received_from(message: Any) -> Received:
    error = message.error()
    if error is not None:
        raise Refused(_wire_code(error), error.str())
    timestamp_type, timestamp = message.timestamp()
    return Received(
        message.partition(),
        message.offset(),
        timestamp,
        timestamp_type - 1,  # librdkafka has 0 for none, 1 for create time, 2 for log append time
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


def _result(future: Future[Any]) -> Any:
    try:
        return future.result(TIMEOUT_SECONDS)
    except KafkaException as error:
        raise Refused(_wire_code(error.args[0]), error) from None


def _wire_code(error: KafkaError) -> int:
    """Return Kafka's error code; librdkafka hides it behind an error code of its own when it gives up an offset
    reset.
    """
    if error.code() == KafkaError._AUTO_OFFSET_RESET and "out of range" in error.str().lower():
        return int(KafkaError.OFFSET_OUT_OF_RANGE)
    return int(error.code())
