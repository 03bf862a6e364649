"""What internal topics are created with."""

import pytest

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.internal_topics import internal_topic
from oncelog_protocol.errors import ErrorCode, KafkaError


def test_consumer_offsets_as_kafka_creates_it():
    topic = internal_topic("__consumer_offsets", BrokerConfig.of({}), live_brokers=5, may_degrade=False)
    assert topic is not None
    assert (topic.partitions, topic.replication_factor) == (50, 3)
    assert topic.overrides == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
    }


def test_s31_transaction_state_as_kafka_creates_it():
    topic = internal_topic("__transaction_state", BrokerConfig.of({}), live_brokers=5, may_degrade=False)
    assert topic is not None
    assert (topic.partitions, topic.replication_factor) == (50, 3)
    assert topic.overrides == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
    alone = internal_topic("__transaction_state", BrokerConfig.of({}), live_brokers=1, may_degrade=True)
    assert alone is not None
    assert (alone.replication_factor, alone.overrides["min.insync.replicas"]) == (1, "1")


def test_s31_fewer_brokers_than_replicas():
    config = BrokerConfig.of({"offsets.topic.num.partitions": "7", "offsets.topic.replication.factor": "2"})
    for live, replicas in ((0, 1), (1, 1), (2, 2), (9, 2)):
        assert internal_topic("__consumer_offsets", config, live, may_degrade=True)[:2] == (7, replicas)


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_in_a_cluster_they_wait_for_as_many_brokers_as_they_need(name):
    with pytest.raises(KafkaError) as raised:
        internal_topic(name, BrokerConfig.of({}), live_brokers=2, may_degrade=False)
    assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_other_topics_are_ordinary():
    assert internal_topic("orders", BrokerConfig.of({}), 1, may_degrade=True) is None


def test_the_settings_of_groups_are_kafkas_but_for_two():
    ours = GroupConfig.of(BrokerConfig.of({}))
    assert ours == GroupConfig()
    assert (ours.initial_rebalance_delay_ms, ours.max_size) == (0, 1000)
