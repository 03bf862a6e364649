from __future__ import annotations

import re

import pytest

from oncelog.cluster import Cluster, Topic, TopicPartition
from oncelog.consumer.group.interest import Interest, RebalanceListener

CLUSTER = Cluster(
    topics={
        name: Topic(name, is_internal=name.startswith("__")) for name in ("orders", "orders-eu", "bills", "__offsets")
    }
)


def test_names_count_whether_they_exist_or_not() -> None:
    interest = Interest.of(["orders", "new"], None, True)
    assert interest
    assert interest.topics(CLUSTER) == {"orders", "new"}


@pytest.mark.parametrize(
    ("pattern", "exclude_internal", "matched"),
    [
        ("orders", True, {"orders"}),
        ("orders.*", True, {"orders", "orders-eu"}),
        (re.compile("ORDERS", re.IGNORECASE), True, {"orders"}),
        (".*", True, {"orders", "orders-eu", "bills"}),
        (".*", False, {"orders", "orders-eu", "bills", "__offsets"}),
        ("none", True, set()),
    ],
)
def test_a_pattern_matches_whole_names(
    pattern: str | re.Pattern[str], exclude_internal: bool, matched: set[str]
) -> None:
    interest = Interest.of(None, pattern, exclude_internal)
    assert interest
    assert interest.topics(CLUSTER) == matched


@pytest.mark.parametrize(("topics", "pattern"), [(None, None), (["a"], "a"), ("orders", None), ([], None)])
def test_one_of_both_is_needed(topics: list[str] | None, pattern: str | None) -> None:
    with pytest.raises(ValueError):
        Interest.of(topics, pattern, True)


def test_no_interest_is_none() -> None:
    assert not Interest()


async def test_what_is_lost_counts_as_revoked_unless_said_otherwise() -> None:
    calls = []

    class Listener(RebalanceListener):
        async def on_revoked(self, partitions: object) -> None:
            calls.append(partitions)

    await Listener().on_lost([TopicPartition("a", 0)])
    assert calls == [[TopicPartition("a", 0)]]
