"""The internal topics in which coordinators store their state. A topic is created when a client first needs a
coordinator that uses it, with the same settings as in Kafka."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config import share_keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.metadata.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.light_classes import NamedTuple

logger = logging.getLogger(__name__)


class InternalTopic(NamedTuple):
    """The partitions, replicas and settings with which an internal topic is created."""

    partitions: int
    replication_factor: int
    overrides: Mapping[str, str]


MIN_INSYNC_REPLICAS: Final = 2
"""min.insync.replicas of the coordinators' topics, if they have at least two replicas: with this value an acknowledged
change survives the loss of the coordinator's broker.
"""


def internal_topic(name: str, config: BrokerConfig, live_brokers: int, *, may_degrade: bool) -> InternalTopic | None:
    """Return the specification of an internal topic; None if the topic is not internal, or if this broker does not run
    the coordinator that uses the topic.

    If fewer brokers are alive than `*.replication.factor` and `may_degrade` is True, each live broker gets a replica
    (S31). `may_degrade` is True for a cluster that will never have more brokers. If `may_degrade` is False, raises
    KafkaError COORDINATOR_NOT_AVAILABLE until enough brokers are alive. Without this wait, the first broker that starts
    would create the topic with one replica, and the topic would keep a single replica.
    """
    if name == CONSUMER_OFFSETS:
        wanted = config[keys.OFFSETS_TOPIC_REPLICATION_FACTOR]
        replicas = _replicas(name, wanted, live_brokers, may_degrade)
        overrides = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config[keys.OFFSETS_TOPIC_SEGMENT_BYTES]),
        }
        if replicas > 1:
            overrides["min.insync.replicas"] = str(MIN_INSYNC_REPLICAS)
        return InternalTopic(config[keys.OFFSETS_TOPIC_NUM_PARTITIONS], replicas, overrides)
    if name == TRANSACTION_STATE:
        wanted = config[keys.TRANSACTION_STATE_LOG_REPLICATION_FACTOR]
        replicas = _replicas(name, wanted, live_brokers, may_degrade)
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
    if name == SHARE_GROUP_STATE:
        wanted = config[share_keys.SHARE_STATE_TOPIC_REPLICATION_FACTOR]
        replicas = _replicas(name, wanted, live_brokers, may_degrade)
        return InternalTopic(
            config[share_keys.SHARE_STATE_TOPIC_NUM_PARTITIONS],
            replicas,
            {
                # The topic `__share_group_state` is not compacted, because its records contain changes relative to
                # older records. The share coordinator deletes old records.
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "retention.bytes": "-1",
                "compression.type": "producer",
                "min.insync.replicas": str(min(config[share_keys.SHARE_STATE_TOPIC_MIN_ISR], replicas)),
                "segment.bytes": str(config[share_keys.SHARE_STATE_TOPIC_SEGMENT_BYTES]),
                "unclean.leader.election.enable": "false",
            },
        )
    return None


def needed_settings(name: str, config: BrokerConfig) -> Mapping[str, str]:
    """Return the settings of the internal topic `name`; {} for other topics. A single broker needs them for an internal
    topic whose log it has found in its log directories and whose settings it does not know. Without these settings,
    retention would delete old records of the topic.
    """
    internal = internal_topic(name, config, live_brokers=1, may_degrade=True)
    return {} if internal is None else internal.overrides


def tell_deleted_by_age(old: ClusterImage | None, new: ClusterImage) -> None:
    """Log an error once if the cleanup.policy of `__consumer_offsets` or `__transaction_state` includes `delete`:
    retention then deletes the state of groups or transactional ids.

    `old`: the previous cluster image; None at the start of the broker. A topic that was just created is not checked,
    since its settings may arrive later.
    """
    if old is not None and new.topic_configs is old.topic_configs:
        return
    for name in (CONSUMER_OFFSETS, TRANSACTION_STATE):
        is_new = old is None or (name in old.topics and not _is_deleted_by_age(old, name))
        if is_new and _is_deleted_by_age(new, name):
            logger.error(
                "the cleanup.policy of an internal topic includes delete: offsets or transactional ids that "
                "are unused for retention.ms are deleted. Set cleanup.policy=compact for this topic",
                extra={"topic": name},
            )


def _is_deleted_by_age(image: ClusterImage, name: str) -> bool:
    policy = image.config_of_topic(name).get("cleanup.policy", "delete")
    return name in image.topics and "delete" in policy.split(",")


def _replicas(name: str, wanted: int, live_brokers: int, may_degrade: bool) -> int:
    if may_degrade:
        return min(wanted, max(1, live_brokers))
    if live_brokers < wanted:
        message = f"{name} needs {wanted} replicas, but {live_brokers} brokers are alive: start more, or ask for fewer"
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
    return wanted
