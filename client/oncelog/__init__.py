"""oncelog: an asyncio client for Kafka-protocol clusters.

  cli/                        the commands of `oncelog`
  consume_process_produce.py  exactly-once loop: consume, process, produce in transactions
  producer/                   batches, partitioning, sending, transactions
  consumer/                   fetching, positions, groups
  share/                      consumers of share groups: records instead of partitions are shared
  admin/                      topics, configuration, offsets, groups, transactions
  metadata/                   cluster metadata; requests to leaders and coordinators
  connection/                 one broker connection, version negotiation, the pool
  serialization/              serializers, deserializers, the client of a schema registry
  group_offsets.py            values for committed offsets and group membership
  tracing/                    OpenTelemetry: spans, and the context in record headers
  prepared_transaction.py     a prepared transaction that another process completes
  cluster.py                  brokers, topics, partition leaders
  config.py                   Kafka's keys, types, defaults and bounds
  type_checks.py              checks values against the declared types of options
  typed_options.py            the same options as typed keywords, generated from config.py
  interceptors.py             hooks of an application on sending, reading and committing
  names.py                    valid topic and client names
  escaping.py                 escapes foreign text for a terminal
  errors.py                   exceptions
  address.py                  host and port of a broker
  jaas.py                     parses sasl.jaas.config
  lifecycle.py                base class of clients used with `async with`
  cancelling.py               distinguishes the task's own cancellation
  backoff.py, timer.py, clock.py
  http_bounds.py              limits of HTTP connections of broker and console
  fail_points/                fault injection for tests

The names below are imported at first use, so that `import oncelog` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from oncelog.admin import Admin, NewTopic
    from oncelog.cluster import TopicPartition
    from oncelog.consumer.consumer import Consumer
    from oncelog.consumer.group.interest import RebalanceListener
    from oncelog.consumer.records import BatchHeader, ColumnBatch, ConsumerRecord, UndecodedBatch
    from oncelog.errors import KafkaError
    from oncelog.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
    from oncelog.interceptors import ConsumerInterceptor, ProducerInterceptor
    from oncelog.prepared_transaction import PreparedTransaction
    from oncelog.producer.producer import Producer, RecordMetadata
    from oncelog.share.share_consumer import ShareConsumer
    from oncelog.share.share_records import ShareRecord

__all__ = [
    "Admin",
    "BatchHeader",
    "ColumnBatch",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "KafkaError",
    "NewTopic",
    "OffsetAndMetadata",
    "PreparedTransaction",
    "Producer",
    "ProducerInterceptor",
    "RebalanceListener",
    "RecordMetadata",
    "ShareConsumer",
    "ShareRecord",
    "TopicPartition",
    "UndecodedBatch",
]

_HOMES: Final = {
    "Admin": "oncelog.admin",
    "BatchHeader": "oncelog.consumer.records",
    "ColumnBatch": "oncelog.consumer.records",
    "Consumer": "oncelog.consumer.consumer",
    "ConsumerGroupMetadata": "oncelog.group_offsets",
    "ConsumerInterceptor": "oncelog.interceptors",
    "ConsumerRecord": "oncelog.consumer.records",
    "KafkaError": "oncelog.errors",
    "NewTopic": "oncelog.admin",
    "OffsetAndMetadata": "oncelog.group_offsets",
    "PreparedTransaction": "oncelog.prepared_transaction",
    "Producer": "oncelog.producer.producer",
    "ProducerInterceptor": "oncelog.interceptors",
    "RebalanceListener": "oncelog.consumer.group.interest",
    "RecordMetadata": "oncelog.producer.producer",
    "ShareConsumer": "oncelog.share.share_consumer",
    "ShareRecord": "oncelog.share.share_records",
    "TopicPartition": "oncelog.cluster",
    "UndecodedBatch": "oncelog.consumer.records",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'oncelog' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value  # store the name here, so that later accesses do not call __getattr__
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
