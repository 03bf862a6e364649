import pytest

from oncelog_broker.config.alter import (
    AlterOperation,
    ConfigChange,
    add_change,
    alter_broker_overrides,
    alter_topic_overrides,
    check_topic_overrides,
)
from oncelog_protocol.errors import ErrorCode, KafkaError

SET, DELETE, APPEND, SUBTRACT = AlterOperation


def change(name, operation, value=None):
    return ConfigChange(name, operation, value)


def altered_topic(current, changes):
    return alter_topic_overrides(current, by_key(changes))


def altered_broker(current, changes):
    return alter_broker_overrides(current, by_key(changes))


def by_key(changes):
    found = {}
    for each in changes:
        add_change(found, each)
    return found


def refused(code, call, *args):
    with pytest.raises(KafkaError) as caught:
        call(*args)
    assert caught.value.code is code
    return caught.value.message


def test_operation_codes():
    assert [int(operation) for operation in AlterOperation] == [0, 1, 2, 3]


def test_create_topic_overrides_are_kept_in_one_form():
    assert check_topic_overrides(
        {"cleanup.policy": " compact , delete", "retention.ms": " 5 ", "preallocate": "TRUE"}
    ) == {
        "cleanup.policy": "compact,delete",
        "retention.ms": "5",
        "preallocate": "true",
    }


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"retention.msx": "1"}, "did you mean retention.ms?"),
        ({"log.retention.ms": "1"}, "Unknown configuration log.retention.ms"),
        ({"retention.ms": "-2"}, "'-2' for configuration retention.ms: expected a 64-bit integer, at least -1"),
        ({"cleanup.policy": "shrink"}, "any of delete, compact"),
        ({"remote.storage.enable": "true"}, "only false, as there is no tiered storage"),
        ({"compression.gzip.level": "99"}, "between 1 and 9, or -1"),
        ({"leader.replication.throttled.replicas": "x"}, "of partition:broker, or *"),
        ({"compression.type": "brotli"}, "one of producer, uncompressed, gzip, snappy, lz4, zstd"),
        ({"retention.ms": None}, "retention.ms has no value"),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, "greater than max.compaction.lag.ms 8"),
        ({"min.insync.replicas": "0"}, "between 1 and"),
    ],
)
def test_bad_topic_overrides_are_refused(overrides, words):
    assert words in refused(ErrorCode.INVALID_CONFIG, check_topic_overrides, overrides)


def test_a_kafka_setting_without_effect_here_is_accepted():
    overrides = {
        "compression.gzip.level": "5",
        "compression.lz4.level": "5",
        "compression.zstd.level": "5",
        "follower.replication.throttled.replicas": "0:7,1:7",
        "leader.replication.throttled.replicas": "*",
        "local.retention.bytes": "1000",
        "local.retention.ms": "1000",
        "remote.log.copy.disable": "false",
        "remote.storage.enable": "false",
    }
    assert check_topic_overrides(overrides) == overrides


def test_a_topic_may_be_neither_deleted_from_nor_compacted():
    assert check_topic_overrides({"cleanup.policy": ""}) == {"cleanup.policy": ""}
    emptied = altered_topic({}, [change("cleanup.policy", SUBTRACT, "delete")])
    assert emptied == {"cleanup.policy": ""}
    assert altered_topic(emptied, [change("cleanup.policy", APPEND, "")]) == {"cleanup.policy": ""}
    assert altered_topic(emptied, [change("cleanup.policy", APPEND, "compact")]) == {"cleanup.policy": "compact"}


def test_settings_are_set_and_deleted():
    current = {"retention.ms": "5", "segment.bytes": "1000"}
    altered = altered_topic(current, [change("retention.ms", DELETE), change("flush.ms", SET, "9")])
    assert altered == {"segment.bytes": "1000", "flush.ms": "9"}
    assert current == {"retention.ms": "5", "segment.bytes": "1000"}, "the overrides given stay as they are"


def test_deleting_an_unset_setting_is_no_error():
    assert altered_topic({}, [change("retention.ms", DELETE)]) == {}


@pytest.mark.parametrize(
    ("current", "operation", "value", "policy"),
    [
        (None, APPEND, "compact", "delete,compact"),
        (None, APPEND, "delete", "delete"),
        ("compact", APPEND, "delete,compact", "compact,delete"),
        ("compact,delete", SUBTRACT, "delete", "compact"),
        ("compact", SUBTRACT, "delete", "compact"),
    ],
)
def test_list_settings_are_appended_to_and_subtracted_from(current, operation, value, policy):
    overrides = {} if current is None else {"cleanup.policy": current}
    assert altered_topic(overrides, [change("cleanup.policy", operation, value)]) == {"cleanup.policy": policy}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([change("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([change("cleanup.policy", APPEND, "shrink")], ErrorCode.INVALID_CONFIG),
        ([change("cleanup.policy", APPEND)], ErrorCode.INVALID_REQUEST),
        ([change("nothing", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([change("nothing", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG),
        ([change("retention.ms", SET)], ErrorCode.INVALID_REQUEST),
        ([change("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        ([change("retention.ms", 4, "1")], ErrorCode.INVALID_REQUEST),
        ([change("retention.ms", SET, "1"), change("retention.ms", DELETE)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_changes_of_settings_are_refused(changes, code):
    assert refused(code, altered_topic, {}, changes)


def test_changes_are_checked_against_what_is_set():
    current = {"max.compaction.lag.ms": "8"}
    refused(ErrorCode.INVALID_CONFIG, altered_topic, current, [change("min.compaction.lag.ms", SET, "9")])


def test_broker_changes():
    assert altered_broker({}, [change("log.retention.ms", SET, "5")]) == {"log.retention.ms": "5"}
    assert altered_broker({}, [change("log.cleanup.policy", APPEND, "compact")]) == {
        "log.cleanup.policy": "delete,compact"
    }
    message = refused(ErrorCode.INVALID_REQUEST, altered_broker, {}, [change("node.id", SET, "5")])
    assert "cannot change" in message
    refused(ErrorCode.INVALID_CONFIG, altered_broker, {}, [change("retention.ms", SET, "5")])
