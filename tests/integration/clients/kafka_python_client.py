"""kafka-python."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from foreign_clients import BROKERS, FETCH_WAIT_MS, TIMEOUT_SECONDS, ForeignClient, Placed, Received, Record, Refused
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, for_code
from kafka.partitioner.default import murmur2

TIMEOUT_MS = int(TIMEOUT_SECONDS * 1000)


class KafkaPython(ForeignClient):
    name = "kafka-python"
    sends_null_headers = False
    refuses_empty_record = True

    def __init__(self, address: str, **settings: Any) -> None:
        """`settings` are passed to every client that this adapter creates; `api_version` is a setting of single
        clients.
        """
        self._common = {"bootstrap_servers": address, "request_timeout_ms": TIMEOUT_MS, **settings}
        self._admin_client: KafkaAdminClient | None = None

    @property
    def admin(self) -> KafkaAdminClient:
        if self._admin_client is None:
            self._admin_client = KafkaAdminClient(**self._common)
        return self._admin_client

    def producer(self, **settings: Any) -> KafkaProducer:
        return KafkaProducer(
            **{
                **self._common,
                "max_request_size": 4_000_000,
                "max_block_ms": TIMEOUT_MS,
                "delivery_timeout_ms": 2 * TIMEOUT_MS,
                **settings,
            }
        )

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
            acks=acks, enable_idempotence=idempotent, compression_type=compression, linger_ms=1000, batch_size=1 << 20
        )
        with closing(producer), _refusals():
            futures = [
                producer.send(
                    topic, record.value, record.key, list(record.headers), partition, timestamp_ms=record.timestamp_ms
                )
                for record in records
            ]
            producer.flush(TIMEOUT_SECONDS)
            sent = [future.get(TIMEOUT_SECONDS) for future in futures]
        # If there is no response, the offset is unknown, and kafka-python then counts offsets from 0.
        return [Placed(metadata.partition, metadata.offset if acks else -1) for metadata in sent]

    def consumer(self, **settings: Any) -> KafkaConsumer:
        return KafkaConsumer(
            **{
                **self._common,
                "auto_offset_reset": "none",
                "enable_auto_commit": False,
                "max_partition_fetch_bytes": 4_000_000,
                "fetch_max_wait_ms": FETCH_WAIT_MS,
                **settings,
            }
        )

    def consume(
        self, topic: str, count: int, *, partition: int = 0, offset: int = 0, isolation: str = "read_uncommitted"
    ) -> list[Received]:
        source = TopicPartition(topic, partition)
        received: list[Received] = []
        with closing(self.consumer(isolation_level=isolation)) as consumer, _refusals():
            consumer.assign([source])
            consumer.seek(source, offset)
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while len(received) < count and time.monotonic() < deadline:
                polled = consumer.poll(1000, max_records=count - len(received))
                received += [_received(record) for record in polled.get(source, ())]
        assert len(received) == count, f"{len(received)} of {count} records came"
        return received

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        source = TopicPartition(topic, partition)
        with closing(self.consumer()) as consumer, _refusals():
            return consumer.beginning_offsets([source])[source], consumer.end_offsets([source])[source]

    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        source = TopicPartition(topic, partition)
        with closing(self.consumer()) as consumer, _refusals():
            found = consumer.offsets_for_times({source: timestamp_ms})[source]
        return None if found is None else int(found.offset)

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
        wanted = {
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "configs": dict(configs or {}),
        }
        with _refusals():
            self.admin.create_topics({name: wanted}, validate_only=validate_only)

    def delete_topic(self, name: str) -> None:
        with _refusals():
            self.admin.delete_topics([name])

    def topics(self) -> set[str]:
        return set(self.admin.list_topics())

    def partition_count(self, topic: str) -> int:
        (described,) = self.admin.describe_topics([topic])
        _raise_for(described["error_code"])
        return len(described["partitions"])

    def create_partitions(self, topic: str, total: int) -> None:
        with _refusals():
            self.admin.create_partitions({topic: total})

    def configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        with _refusals():
            described = self.admin.describe_configs([resource], config_filter="all")
        return {name: entry["value"] for name, entry in described["topic"][topic].items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str], *, incremental: bool = False) -> None:
        """The old and the incremental AlterConfigs both keep the topic's other settings, because kafka-python's old
        AlterConfigs also sends them.
        """
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        with _refusals():
            answer = self.admin.alter_configs([resource], incremental=incremental)
        for result in answer["topic"].values():  # each result is a text, "OK" or "[Error 40] ..."
            refused = re.match(r"\[Error (\d+)\]", str(result))
            if refused:
                raise Refused(int(refused[1]), result)

    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        source = TopicPartition(topic, partition)
        with _refusals():
            return int(self.admin.delete_records({source: before_offset})[source]["low_watermark"])

    def brokers(self) -> list[tuple[int, str, int]]:
        return [(node["broker_id"], node["host"], node["port"]) for node in self.admin.describe_cluster()["brokers"]]

    def close(self) -> None:
        if self._admin_client is not None:
            self._admin_client.close()
            self._admin_client = None


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


def _raise_for(code: int) -> None:
    if code:
        raise Refused(code, for_code(code).__name__)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        cause = error if hasattr(error, "errno") else error.__cause__ or error
        raise Refused(getattr(cause, "errno", -1), repr(error)) from error
