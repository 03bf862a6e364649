import pytest

from oncelog_broker.log.directories.data_directory import METADATA_TOPIC
from oncelog_broker.metadata.topic_names import (
    CLUSTER_METADATA,
    check_no_collision,
    check_topic_may_be_made,
    check_topic_name,
    is_internal,
)
from oncelog_protocol.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("name", ["a", "A-Z_0.9", "...", "-", "x" * 249, "__consumer_offsets"])
def test_legal_names_pass(name):
    assert check_topic_name(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string"),
        (".", r"'\.' is not allowed"),
        ("..", r"'\.\.' is not allowed"),
        ("x" * 250, "250 characters"),
        ("a b", "characters other than"),
        ("a/b", "characters other than"),
        ("ä", "characters other than"),
        ("a\n", "characters other than"),
        ("a\0", "characters other than"),
    ],
)
def test_illegal_names_are_refused_with_the_reason(name, reason):
    with pytest.raises(KafkaError, match=reason) as raised:
        check_topic_name(name)
    assert raised.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_name_of_krafts_metadata_log_is_kept_for_it():
    """At startup, the broker skips a directory of this name, so a topic with the name would lose its records at each
    restart.
    """
    assert CLUSTER_METADATA == METADATA_TOPIC
    with pytest.raises(KafkaError, match="prohibited") as raised:
        check_topic_may_be_made(CLUSTER_METADATA)
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert check_topic_may_be_made("__cluster_metadata_") is None


def test_names_that_differ_in_dots_against_underscores_alone_collide():
    with pytest.raises(KafkaError, match=r"'a\.b' collides with the topic 'a_b'") as raised:
        check_no_collision("a.b", ["x", "a_b"])
    assert raised.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(("name", "existing"), [("ab", ["a_b"]), ("a.b", ["a.b", "a-b", "ab"]), ("a_b", [])])
def test_other_names_do_not_collide(name, existing):
    assert check_no_collision(name, existing) is None


def test_internal_topics_are_recognised_by_name():
    assert is_internal("__transaction_state")
    assert not is_internal("_transaction_state")
