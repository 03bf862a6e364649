"""Kafka's keys that have no effect in oncelog are accepted with one warning; unknown keys are refused."""

import logging

import pytest

from oncelog_broker.config import effectless_keys
from oncelog_broker.config.alter import AlterOperation, ConfigChange, alter_broker_overrides, alter_topic_overrides
from oncelog_broker.config.broker_keys import BROKER_KEYS
from oncelog_broker.config.declared import NO_EFFECT, ConfigSource, InvalidConfig
from oncelog_broker.config.effectless_warnings import EffectlessWarnings
from oncelog_broker.config.load import load_broker_config
from oncelog_broker.config.resolve import describe_effectless
from oncelog_protocol.errors import ErrorCode, KafkaError

SET, DELETE, APPEND, SUBTRACT = AlterOperation
RATE = "leader.replication.throttled.rate"
THROTTLES = (RATE, "follower.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def changes(operation, *names, value=None):
    return {name: ConfigChange(name, operation, value) for name in names}


def refused(call, *args):
    with pytest.raises(KafkaError) as caught:
        call(*args)
    return caught.value.code, caught.value.message


def test_all_throttles_of_a_reassignment_are_deleted_in_one_request():
    """Kafka's tool deletes three throttle keys of each broker and two of each topic, even if it never set them."""
    assert alter_broker_overrides({RATE: "1000"}, changes(DELETE, *THROTTLES)) == {}
    assert alter_topic_overrides({REPLICAS[0]: "0:1", "retention.ms": "5"}, changes(DELETE, *REPLICAS)) == {
        "retention.ms": "5"
    }


@pytest.mark.parametrize("name", ["no.such.key", "node.id", "log.dirs", "num.io.threads", "process.roles"])
def test_deleting_an_unset_or_unknown_key_changes_nothing(name):
    assert alter_broker_overrides({RATE: "1"}, changes(DELETE, name)) == {RATE: "1"}
    assert alter_topic_overrides({"retention.ms": "5"}, changes(DELETE, name)) == {"retention.ms": "5"}


def test_an_element_that_no_list_can_have_is_not_there():
    assert alter_topic_overrides({}, changes(SUBTRACT, "cleanup.policy", value="nonsense")) == {
        "cleanup.policy": "delete"
    }
    assert alter_topic_overrides({REPLICAS[0]: "0:1,1:2"}, changes(SUBTRACT, REPLICAS[0], value="1:2, what")) == {
        REPLICAS[0]: "0:1"
    }


def test_a_key_of_kafkas_without_effect_is_kept():
    kept = alter_broker_overrides({}, changes(SET, "num.io.threads", value=" 16 "))
    assert kept == {"num.io.threads": "16"}
    assert alter_broker_overrides(kept, changes(APPEND, "metric.reporters", value="com.example.Reporter")) == {
        "num.io.threads": "16",
        "metric.reporters": "com.example.Reporter",
    }
    assert alter_broker_overrides(kept, changes(DELETE, "num.io.threads")) == {}


@pytest.mark.parametrize(
    ("name", "value", "code", "words"),
    [
        ("num.io.thread", "8", ErrorCode.INVALID_CONFIG, "did you mean num.io.threads?"),
        ("num.partitons", "8", ErrorCode.INVALID_CONFIG, "did you mean num.partitions?"),
        ("num.io.threads", "many", ErrorCode.INVALID_CONFIG, "expected a 32-bit integer"),
        ("principal.builder.class", "com.example.B", ErrorCode.INVALID_CONFIG, "this broker loads no Java classes"),
        ("cordoned.log.dirs", "/a", ErrorCode.INVALID_CONFIG, "would still create new logs"),
        ("request.timeout.ms", "1", ErrorCode.INVALID_REQUEST, "cannot change while the broker runs"),
        ("listener.name.external.ssl.keystore.location", "/a", ErrorCode.INVALID_REQUEST, "cannot change while"),
    ],
)
def test_other_keys_are_refused_with_the_reason(name, value, code, words):
    answered, message = refused(alter_broker_overrides, {}, changes(SET, name, value=value))
    assert answered is code
    assert words in message


def test_keys_that_change_nothing_are_not_those_that_do():
    for name in (*effectless_keys.dynamic_keys(), *effectless_keys.static_names()):
        assert name not in BROKER_KEYS, name
        assert effectless_keys.reason_to_refuse(name, "x") is None, name
    assert not effectless_keys.static_names() & effectless_keys.dynamic_keys().keys()


def test_each_setting_without_effect_is_logged_once(caplog):
    warnings = EffectlessWarnings()
    for _ in range(3):
        warnings.of_broker(["num.io.threads", "num.partitions", "of.a.newer.version"])
        warnings.of_topic(["remote.storage.enable", "retention.ms"])
    assert [(record.message, record.key, record.resource) for record in caplog.records] == [
        (NO_EFFECT, "num.io.threads", "broker"),
        (NO_EFFECT, "remote.storage.enable", "topic"),
    ]


def test_a_setting_without_effect_is_described_where_it_is_set():
    described = describe_effectless({"num.io.threads": "4", RATE: "5"}, {"num.io.threads": "8", "x.y": "1"})
    (line,) = described
    assert (line.name, line.value, line.source) == ("num.io.threads", "4", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [synonym.value for synonym in line.synonyms] == ["4", "8"]


def test_a_start_accepts_a_setting_without_effect_with_a_warning(caplog):
    caplog.set_level(logging.WARNING)
    config = load_broker_config(None, {}, ["num.network.threads=3", "socket.listen.backlog.size=50", "node.id=4"])
    assert config.node_id == 4
    assert [record.key for record in caplog.records] == ["num.network.threads", "socket.listen.backlog.size"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("process.roles=broker,controller", "KRaft is not supported"),
        ("controller.quorum.voters=1@a:9093", "set zookeeper.connect to form a cluster"),
        ("create.topic.policy.class.name=com.example.P", "the rules of that class would not be applied"),
        ("remote.log.storage.system.enable=true", "tiered storage is not supported"),
        ("num.network.thread=3", "Unknown configuration num.network.thread"),
    ],
)
def test_a_start_refuses_a_setting_that_would_promise_a_missing_feature(setting, words):
    with pytest.raises(InvalidConfig, match=words):
        load_broker_config(None, {}, [setting])


def test_a_setting_may_switch_off_a_missing_feature():
    load_broker_config(None, {}, ["remote.log.storage.system.enable=false"])
