"""The settings with which internal topics are created."""

import pytest

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.internal_topics import internal_topic, needed_settings, tell_deleted_by_age
from oncelog_broker.metadata.model.image import ClusterImage, Topic
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
def test_internal_topics_wait_for_as_many_brokers_as_they_need(name):
    with pytest.raises(KafkaError) as raised:
        internal_topic(name, BrokerConfig.of({}), live_brokers=2, may_degrade=False)
    assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_other_topics_are_ordinary():
    assert internal_topic("orders", BrokerConfig.of({}), 1, may_degrade=True) is None


def test_the_settings_of_groups_are_kafkas_but_for_two():
    ours = GroupConfig.of(BrokerConfig.of({}))
    assert ours == GroupConfig()
    assert (ours.initial_rebalance_delay_ms, ours.max_size) == (0, 1000)


def test_an_adopted_internal_topic_gets_the_required_settings():
    assert needed_settings("__consumer_offsets", BrokerConfig.of({}))["cleanup.policy"] == "compact"
    assert needed_settings("__transaction_state", BrokerConfig.of({}))["min.insync.replicas"] == "1"
    assert needed_settings("orders", BrokerConfig.of({})) == {}


def test_an_internal_topic_with_retention_by_age_is_warned_about_once(caplog):
    def image(policy):
        topics = [Topic(name, bytes([1]) * 16, {}) for name in ("__consumer_offsets", "orders")]
        settings = {} if policy is None else {"cleanup.policy": policy}
        return ClusterImage("c").with_topics(topics).with_topic_configs({"__consumer_offsets": settings})

    compacted, both, deleted, unset = image("compact"), image("compact,delete"), image("delete"), image(None)
    tell_deleted_by_age(None, compacted)
    tell_deleted_by_age(ClusterImage("c"), unset)  # settings of the topic may arrive later
    assert not caplog.records
    for bad in (both, deleted, unset):
        caplog.clear()
        tell_deleted_by_age(compacted, bad)
        tell_deleted_by_age(bad, bad.with_topic_configs({"orders": {"retention.ms": "1"}}))
        (said,) = caplog.records
        assert said.topic == "__consumer_offsets"
    caplog.clear()
    tell_deleted_by_age(None, unset)
    assert len(caplog.records) == 1
