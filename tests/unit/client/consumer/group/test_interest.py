from __future__ import annotations

import re
from typing import Any

import pytest

from oncelog.cluster import Cluster, Topic, TopicPartition
from oncelog.consumer.group.interest import Interest, RebalanceListener, check_listener

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
def test_topics_or_a_pattern_are_needed(topics: list[str] | None, pattern: str | None) -> None:
    with pytest.raises(ValueError):
        Interest.of(topics, pattern, True)


def test_an_empty_subscription_is_none() -> None:
    assert not Interest()


async def test_lost_partitions_count_as_revoked_by_default() -> None:
    calls = []

    class Listener(RebalanceListener):
        async def on_revoked(self, partitions: object) -> None:
            calls.append(partitions)

    await Listener().on_lost([TopicPartition("a", 0)])
    assert calls == [[TopicPartition("a", 0)]]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("on_partitions_revoked", "on_revoked"),
        ("onPartitionsAssigned", "on_assigned"),
        ("on_partitions_lost", "on_lost"),
        ("on_done", None),
    ],
)
def test_a_listener_with_a_method_that_nobody_calls_is_refused(name: str, meant: str | None) -> None:
    """The method's name resembles those in Java's client and in aiokafka, but a commit in it would never run."""

    async def method(self: object, partitions: object) -> None:
        raise AssertionError("not called")

    with pytest.raises(TypeError, match=f"Mine.{name} would never be called: .*on_assigned") as refused:
        type("Mine", (RebalanceListener,), {name: method})
    assert (f"did you mean {meant}?" in str(refused.value)) is (meant is not None)


def test_a_listener_of_another_library_is_refused() -> None:
    class Theirs:
        async def on_partitions_revoked(self, partitions: object) -> None: ...

    class Both(Theirs, RebalanceListener):
        pass

    theirs: Any = Theirs()
    with pytest.raises(TypeError, match="Theirs has no on_assigned and no on_revoked and no on_lost; derive it from"):
        check_listener(theirs)
    with pytest.raises(TypeError, match=r"Both.on_partitions_revoked would never be called"):
        check_listener(Both())


def test_a_listener_may_have_other_methods_and_attributes() -> None:
    class Mine(RebalanceListener):
        on_time = 1.0

        def only_mine(self) -> None: ...

        async def on_lost(self, partitions: object) -> None: ...

    check_listener(Mine())
