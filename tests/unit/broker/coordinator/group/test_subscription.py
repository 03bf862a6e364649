"""The topics in a ConsumerProtocolSubscription, as different clients encode it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog_broker.coordinator.group.subscription import subscribed_topics

TWO_TOPICS = b"\x00\x01\x00\x00\x00\x02\x00\x01a\x00\x02bc\xff\xff\xff\xff\x00\x00\x00\x00"


def test_topics_are_read_from_subscriptions_of_any_version():
    assert subscribed_topics(TWO_TOPICS) == {"a", "bc"}
    assert subscribed_topics(b"\x00\x09" + TWO_TOPICS[2:]) == {"a", "bc"}
    assert subscribed_topics(b"\x00\x00\x00\x00\x00\x00") == frozenset()


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\x00",
        TWO_TOPICS[:10],
        b"\xff\xff" + TWO_TOPICS[2:],
        b"\x00\x00\xff\xff\xff\xff",
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff",
        b"\x00\x00\x00\x00\x00\x01\xff\xff",
    ],
)
def test_bytes_that_are_no_subscription_are_refused(broken):
    assert subscribed_topics(broken) is None


@given(st.binary(max_size=40))
def test_any_bytes(data):
    topics = subscribed_topics(data)
    assert topics is None or sum(map(len, topics)) <= len(data)
