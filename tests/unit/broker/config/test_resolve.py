import pytest

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.broker_keys import BROKER_KEYS, NUM_PARTITIONS
from oncelog_broker.config.declared import ConfigSource, InvalidConfig
from oncelog_broker.config.resolve import ConfigSynonym, describe_broker, describe_group, describe_topic, resolve_topic
from oncelog_broker.config.topic_keys import TOPIC_KEYS

TOPIC, BROKER, CLUSTER, STATIC, DEFAULT, *_OTHERS = ConfigSource
HOUR = 3_600_000


def described(overrides, broker, name):
    return next(line for line in describe_topic(overrides, broker) if line.name == name)


def test_the_defaults_are_kafkas():
    values = resolve_topic({}, BrokerConfig())
    assert list(values) == sorted(TOPIC_KEYS)
    assert values == {name: topic_key.key.default for name, topic_key in TOPIC_KEYS.items()}
    assert values["retention.ms"] == values["segment.ms"] == 168 * HOUR
    assert values["flush.ms"] == values["flush.messages"] == values["max.compaction.lag.ms"] == 2**63 - 1
    assert values["segment.jitter.ms"] == 0
    assert values["cleanup.policy"] == ("delete",)
    assert values["max.message.bytes"] == 1048588
    assert values["message.timestamp.after.max.ms"] == HOUR
    assert values["unclean.leader.election.enable"] is False


@pytest.mark.parametrize(
    ("static", "expected"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR),
        ({"log.retention.hours": "2", "log.retention.minutes": "5"}, 300_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "5", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "1"}, -1),
    ],
)
def test_retention_takes_the_finest_unit_that_is_set(static, expected):
    broker = BrokerConfig.of(static)
    assert resolve_topic({}, broker)["retention.ms"] == expected
    line = described({}, broker, "retention.ms")
    assert (line.value, line.source) == (str(expected), STATIC)


def test_the_topics_own_value_goes_first():
    broker = BrokerConfig.of({"log.retention.ms": "7", "log.segment.bytes": "1000"})
    values = resolve_topic({"retention.ms": "9", "cleanup.policy": "compact,delete"}, broker)
    assert values["retention.ms"] == 9
    assert values["cleanup.policy"] == ("compact", "delete")
    assert values["segment.bytes"] == 1000


def test_synonyms_of_a_topic_key_in_order():
    broker = BrokerConfig.of({"log.retention.ms": "7", "log.retention.minutes": "5"}).with_dynamic(
        {"log.retention.ms": 6}, {"log.retention.ms": 8}
    )
    line = described({"retention.ms": "9"}, broker, "retention.ms")
    assert line.value == "9"
    assert line.source is TOPIC
    assert not line.is_default
    assert not line.is_read_only
    assert line.synonyms == (
        ConfigSynonym("retention.ms", "9", TOPIC),
        ConfigSynonym("log.retention.ms", "6", BROKER),
        ConfigSynonym("log.retention.ms", "8", CLUSTER),
        ConfigSynonym("log.retention.ms", "7", STATIC),
        ConfigSynonym("log.retention.minutes", "5", STATIC),
        ConfigSynonym("log.retention.hours", "168", DEFAULT),
    )
    assert described({}, broker, "retention.ms").value == "6"


def test_a_default_is_called_one():
    line = described({}, BrokerConfig(), "min.insync.replicas")
    assert line.is_default
    assert line.synonyms == (ConfigSynonym("min.insync.replicas", "1", DEFAULT),)


def test_the_default_is_a_synonym_of_a_group_key_without_a_broker_key():
    key = "share.isolation.level"
    overrides = {key: "read_committed"}
    (line,) = [line for line in describe_group(overrides, BrokerConfig()) if line.name == key]
    assert line.synonyms == (
        ConfigSynonym(key, "read_committed", ConfigSource.DYNAMIC_GROUP_CONFIG),
        ConfigSynonym(key, "read_uncommitted", DEFAULT),
    )


def test_source_codes_are_those_of_describe_configs():
    assert [int(source) for source in ConfigSource] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_describe_broker_lists_every_key():
    lines = {line.name: line for line in describe_broker(BrokerConfig.of({"num.partitions": "3", "broker.id": "9"}))}
    assert lines.keys() == BROKER_KEYS.keys()
    assert (lines["num.partitions"].value, lines["num.partitions"].source) == ("3", STATIC)
    assert lines["num.partitions"].is_read_only
    assert lines["num.partitions"].synonyms == (
        ConfigSynonym("num.partitions", "3", STATIC),
        ConfigSynonym("num.partitions", "1", DEFAULT),
    )
    assert not lines["log.retention.ms"].is_read_only
    assert lines["log.retention.ms"].value is None
    assert lines["log.retention.ms"].is_default
    assert lines["listeners"].value == "PLAINTEXT://127.0.0.1:9092"
    assert lines["auto.create.topics.enable"].value == "true"
    assert ConfigSynonym("log.dir", "data", DEFAULT) in lines["log.dirs"].synonyms


def test_dynamic_settings_make_a_new_config():
    before = BrokerConfig.of({"num.partitions": "3"})
    after = before.with_dynamic({}, {"num.partitions": 5})
    assert (before[NUM_PARTITIONS], after[NUM_PARTITIONS]) == (3, 5)
    assert list(after.settings(NUM_PARTITIONS)) == [(CLUSTER, 5), (STATIC, 3), (DEFAULT, 1)]


@pytest.mark.parametrize(
    ("static", "node_id"),
    [({}, 1), ({"broker.id": "4"}, 4), ({"node.id": "5"}, 5), ({"node.id": "5", "broker.id": "4"}, 5)],
)
def test_the_node_id_is_resolved(static, node_id):
    assert BrokerConfig.of(static).node_id == node_id


def test_the_log_directories_are_resolved():
    assert BrokerConfig().log_dirs == ("data",)
    assert BrokerConfig.of({"log.dir": "/a"}).log_dirs == ("/a",)
    assert BrokerConfig.of({"log.dirs": "/a,/b", "log.dir": "/c"}).log_dirs == ("/a", "/b")


def test_unknown_and_bad_texts():
    with pytest.raises(InvalidConfig, match=r"did you mean num\.partitions"):
        BrokerConfig.of({"num.partitons": "1"})
    with pytest.raises(InvalidConfig, match="at least 1"):
        BrokerConfig.of({"num.partitions": "0"})
