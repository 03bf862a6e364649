"""Keys of the registration of partitions in transactions V2, for which a leader asks the coordinator (KIP-890)."""

from __future__ import annotations

from oncelog_broker.config.declared import ConfigKey, ConfigType, Importance, at_least

ADD_PARTITIONS_RETRY_BACKOFF_MS = ConfigKey[int](
    "add.partitions.to.txn.retry.backoff.ms",
    ConfigType.INT,
    20,
    "How long a leader waits before it asks the coordinator again to add a partition to a transaction, while the "
    "coordinator completes the producer's previous transaction. Each further pause is twice as long.",
    at_least(1),
    Importance.HIGH,
)
ADD_PARTITIONS_RETRY_BACKOFF_MAX_MS = ConfigKey[int](
    "add.partitions.to.txn.retry.backoff.max.ms",
    ConfigType.INT,
    1000,
    "How long a leader keeps asking the coordinator to add a partition to a transaction, while the coordinator "
    "completes the producer's previous transaction. After that, the producer gets CONCURRENT_TRANSACTIONS and must "
    "send the records again; some producers wait for seconds before they do. With 0, the leader asks once. Kafka's "
    "default is 100, and in Kafka the key does not apply to the offsets of groups.",
    at_least(0),
    Importance.HIGH,
)
