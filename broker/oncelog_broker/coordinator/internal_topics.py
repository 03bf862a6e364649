"""The topics that coordinators keep their state in, made at the first use of a coordinator, with Kafka's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE


class InternalTopic(NamedTuple):
    """What an internal topic is created with."""

    partitions: int
    replication_factor: int
    overrides: Mapping[str, str]


def internal_topic(name: str, config: BrokerConfig, live_brokers: int) -> InternalTopic | None:
    """How the topic is to be made, None for one that is not internal or has no coordinator here.

    Where fewer brokers live than `*.replication.factor` asks for, each of them gets a replica (S31).
    """
    if name == CONSUMER_OFFSETS:
        return InternalTopic(
            config[keys.OFFSETS_TOPIC_NUM_PARTITIONS],
            min(config[keys.OFFSETS_TOPIC_REPLICATION_FACTOR], max(1, live_brokers)),
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config[keys.OFFSETS_TOPIC_SEGMENT_BYTES]),
            },
        )
    if name == TRANSACTION_STATE:
        replicas = min(config[keys.TRANSACTION_STATE_LOG_REPLICATION_FACTOR], max(1, live_brokers))
        return InternalTopic(
            config[keys.TRANSACTION_STATE_LOG_NUM_PARTITIONS],
            replicas,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min(config[keys.TRANSACTION_STATE_LOG_MIN_ISR], replicas)),
                "segment.bytes": str(config[keys.TRANSACTION_STATE_LOG_SEGMENT_BYTES]),
                "unclean.leader.election.enable": "false",
            },
        )
    return None
