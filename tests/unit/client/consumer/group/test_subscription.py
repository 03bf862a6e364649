from __future__ import annotations

import pytest

from oncelog.cluster import TopicPartition
from oncelog.consumer.group.subscription import (
    Subscription,
    by_topic,
    decode_assignment,
    encode_assignment,
)
from oncelog_protocol.errors import MalformedMessage

SUBSCRIPTION = Subscription(
    ("a", "b"), (TopicPartition("a", 0), TopicPartition("a", 2)), generation_id=7, rack="r", user_data=b"u"
)
TOPICS_AND_USER_DATA = b"\0\0\0\2\0\1a\0\1b" + b"\0\0\0\1u"
OWNED = b"\0\0\0\1\0\1a\0\0\0\2\0\0\0\0\0\0\0\2"
VERSIONS = [
    b"\0\0" + TOPICS_AND_USER_DATA,
    b"\0\1" + TOPICS_AND_USER_DATA + OWNED,
    b"\0\2" + TOPICS_AND_USER_DATA + OWNED + b"\0\0\0\7",
    b"\0\3" + TOPICS_AND_USER_DATA + OWNED + b"\0\0\0\7" + b"\0\1r",
]


def test_a_subscription_is_written_in_the_newest_version() -> None:
    assert SUBSCRIPTION.encode() == VERSIONS[3]


def test_every_version_of_a_subscription_is_read() -> None:
    read = [Subscription.decode(data) for data in VERSIONS]
    assert read[3] == SUBSCRIPTION
    assert [len(subscription.owned) for subscription in read] == [0, 2, 2, 2]
    assert [subscription.generation_id for subscription in read] == [-1, -1, 7, 7]
    assert {(subscription.topics, subscription.user_data) for subscription in read} == {(("a", "b"), b"u")}


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    assert Subscription.decode(b"\0\x09" + VERSIONS[3][2:] + b"something new") == SUBSCRIPTION


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff" + VERSIONS[0][2:], VERSIONS[0][:-1], VERSIONS[3][:-2]])
def test_a_malformed_subscription_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        Subscription.decode(data)


def test_an_assignment_is_written_and_read_back() -> None:
    partitions = (TopicPartition("a", 0), TopicPartition("a", 5), TopicPartition("b", 1))
    assert decode_assignment(encode_assignment(reversed(partitions))) == partitions
    assert (
        encode_assignment([TopicPartition("a", 3)]) == b"\0\3" + b"\0\0\0\1\0\1a\0\0\0\1\0\0\0\3" + b"\xff\xff\xff\xff"
    )
    assert decode_assignment(b"") == ()


def test_partitions_are_grouped_in_order() -> None:
    mixed = [TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("b", 0)]
    assert by_topic(mixed) == [("a", [2]), ("b", [0, 1])]
