"""oncelog: an asyncio client for Kafka-protocol clusters.

cli/                        the commands of `oncelog`
consume_process_produce.py  read, work, write, in transactions
producer/                   batches, partitioning, sending, transactions
consumer/                   fetching, positions, groups
admin/                      topics, configuration, offsets, groups, transactions
metadata/                   the view of the cluster, and asking leaders and coordinators
connection/                 one broker connection, version negotiation, the pool
group_offsets.py            what a group commits, and who commits it
tracing/                    OpenTelemetry: spans, and the context in headers
prepared_transaction.py     a transaction that its producer has handed over
cluster.py                  who leads what
config.py                   Kafka's keys, types, defaults and bounds
type_checks.py              whether a value has the type that its option declares
typed_options.py            the same options as typed keywords, generated of config.py
names.py                    what may be sent as a name
escaping.py                 text of others as a terminal may show it
errors.py                   what may go wrong
address.py                  where a broker is
jaas.py                     what stands in sasl.jaas.config
lifecycle.py                what an `async with` opens and closes
cancelling.py               whose cancellation it is
backoff.py, timer.py, clock.py
http_bounds.py              what an HTTP connection of a broker or of the console may take
fail_points/                where a test can strike

The names below load at first use, so that `import oncelog` alone costs nothing.
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
    from oncelog.prepared_transaction import PreparedTransaction
    from oncelog.producer.producer import Producer, RecordMetadata

__all__ = [
    "Admin",
    "BatchHeader",
    "ColumnBatch",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "KafkaError",
    "NewTopic",
    "OffsetAndMetadata",
    "PreparedTransaction",
    "Producer",
    "RebalanceListener",
    "RecordMetadata",
    "TopicPartition",
    "UndecodedBatch",
]

_HOMES: Final = {
    "Admin": "oncelog.admin",
    "BatchHeader": "oncelog.consumer.records",
    "ColumnBatch": "oncelog.consumer.records",
    "Consumer": "oncelog.consumer.consumer",
    "ConsumerGroupMetadata": "oncelog.group_offsets",
    "ConsumerRecord": "oncelog.consumer.records",
    "KafkaError": "oncelog.errors",
    "NewTopic": "oncelog.admin",
    "OffsetAndMetadata": "oncelog.group_offsets",
    "PreparedTransaction": "oncelog.prepared_transaction",
    "Producer": "oncelog.producer.producer",
    "RebalanceListener": "oncelog.consumer.group.interest",
    "RecordMetadata": "oncelog.producer.producer",
    "TopicPartition": "oncelog.cluster",
    "UndecodedBatch": "oncelog.consumer.records",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'oncelog' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value  # the next access finds it without us
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
