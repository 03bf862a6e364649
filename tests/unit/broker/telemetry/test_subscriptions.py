"""A client gets the union of the subscriptions whose patterns match all its attributes, and the shortest interval."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog_broker.runtime.steps import run_steps
from oncelog_broker.telemetry.subscriptions import (
    MAX_ATTRIBUTE_CHARS,
    ClientAttributes,
    Subscribed,
    Subscription,
    select,
    subscription_id,
    subscriptions_in,
)

CLIENT = ClientAttributes("AAECAwQFBgcICQoLDA0ODw", "orders-1", "librdkafka", "2.6.0", "10.0.0.1", "5000")


def selected(*subscriptions: Subscription, client: ClientAttributes = CLIENT) -> Subscribed:
    return run_steps(select(subscriptions, client))


def test_without_a_subscription_no_metric_is_wanted() -> None:
    assert selected() == Subscribed((), 300_000)


def test_subscriptions_are_united_and_the_shortest_interval_counts() -> None:
    one = Subscription(("b", "a"), 60_000, {})
    other = Subscription(("c", "a"), 1_000, {})
    assert selected(one, other) == Subscribed(("a", "b", "c"), 1_000)


def test_all_metrics_stand_for_the_others() -> None:
    assert selected(Subscription(("a",), 60_000, {}), Subscription(("*",), 70_000, {})) == Subscribed(("*",), 60_000)


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ({"client_id": "orders-.*"}, True),
        ({"client_id": "orders-"}, False),  # no match, because the pattern must match the entire value
        ({"client_id": "orders-1", "client_software_name": "librdkafka"}, True),
        ({"client_id": "orders-1", "client_software_name": "apache-kafka-java"}, False),
        ({"client_software_version": r"2\.[0-9]+\.0"}, True),
        ({"client_source_address": r"10\.0\..*"}, True),
        ({"client_source_port": "5000"}, True),
        ({"client_instance_id": "AAECAwQFBgcICQoLDA0ODw"}, True),
        ({"client_id": "("}, False),  # a broker of another release may have accepted this pattern
    ],
)
def test_a_client_must_match_every_pattern(match: dict[str, str], matches: bool) -> None:
    assert selected(Subscription(("a",), 1_000, match)).metrics == (("a",) if matches else ())


def test_a_long_attribute_is_cut_and_matches_nothing() -> None:
    client = CLIENT._replace(client_id="x" * 30_000).cut()
    assert len(client.client_id) == MAX_ATTRIBUTE_CHARS + 1
    assert selected(Subscription(("a",), 1_000, {"client_id": "x*"}), client=client).metrics == ()


def test_subscriptions_are_read_from_settings_and_a_bad_one_is_left_out(caplog: Any) -> None:
    configs = {
        "good": {"metrics": "a,b", "interval.ms": "5000", "match": "client_id=a=b,client_source_port=1"},
        "defaults": {"metrics": "*"},
        "bad": {"interval.ms": "often"},
        "worse": {"match": "nothing"},
    }
    assert subscriptions_in(configs) == [
        Subscription(("a", "b"), 5_000, {"client_id": "a=b", "client_source_port": "1"}),
        Subscription(("*",), 300_000, {}),
    ]
    assert [record.subscription for record in caplog.records] == ["bad", "worse"]


def test_the_id_depends_on_metrics_interval_and_client() -> None:
    first = Subscribed(("a",), 1_000)
    ids = {
        subscription_id(first, bytes(16)),
        subscription_id(Subscribed(("a",), 1_001), bytes(16)),
        subscription_id(Subscribed(("b",), 1_000), bytes(16)),
        subscription_id(first, b"\xff" * 4 + bytes(12)),
    }
    assert len(ids) == 4
    assert all(-(2**31) <= each < 2**31 for each in ids)
    assert subscription_id(first, bytes(16)) in ids
