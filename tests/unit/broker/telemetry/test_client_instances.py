"""Clients get their subscriptions and push metrics at most once per push interval, and get them again when
subscriptions change, as in Kafka.
"""

from __future__ import annotations

from typing import Any

import pytest

from oncelog_broker.runtime.steps import run_steps
from oncelog_broker.telemetry import client_instances
from oncelog_broker.telemetry.client_instances import ClientInstance, ClientInstances
from oncelog_broker.telemetry.subscriptions import ClientAttributes, Subscription
from oncelog_protocol.errors import ErrorCode, KafkaError

ID = bytes(range(16))
CLIENT = ClientAttributes("id", "orders-1", "apache-kafka-java", "4.0.0", "10.0.0.1", "5000")
INTERVAL = 10.0


def clients(interval_ms: int = 10_000) -> ClientInstances:
    instances = ClientInstances()
    instances.subscribe([Subscription(("*",), interval_ms, {})])
    return instances


def found(instances: ClientInstances, now: float, id_: bytes = ID) -> ClientInstance:
    return run_steps(instances.of(id_, CLIENT, now))


def push(instance: ClientInstance, now: float, **more: Any) -> ErrorCode:
    asked = {"subscription": instance.subscription_id, "compression": 0, "size": 10, "is_terminating": False} | more
    try:
        instance.check_push(max_bytes=100, now=now, **asked)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def ask(instance: ClientInstance, now: float) -> ErrorCode:
    try:
        instance.check_get(now)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_a_client_asks_once_in_an_interval() -> None:
    instance = found(clients(), 0)
    assert ask(instance, 0) == ErrorCode.NONE
    assert ask(instance, INTERVAL - 0.1) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert ask(instance, INTERVAL) == ErrorCode.NONE


def test_a_client_pushes_at_once_after_it_has_asked_and_then_once_in_an_interval() -> None:
    instance = found(clients(), 0)
    assert ask(instance, 0) == ErrorCode.NONE
    assert push(instance, 1) == ErrorCode.NONE
    assert push(instance, 1 + INTERVAL - 0.1) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(instance, 1 + INTERVAL) == ErrorCode.NONE


def test_a_terminating_push_comes_at_any_time_and_is_the_last_one() -> None:
    instance = found(clients(), 0)
    assert push(instance, 0) == ErrorCode.NONE
    assert push(instance, 1, is_terminating=True) == ErrorCode.NONE
    assert push(instance, 50) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"subscription": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"size": 101}, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
def test_a_wrong_push_has_its_error(wrong: dict[str, int], code: ErrorCode) -> None:
    assert push(found(clients(), 0), 0, **wrong) == code


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"subscription": 1}, ErrorCode.NONE),
        ({"compression": 9}, ErrorCode.NONE),
        ({"size": 101}, ErrorCode.THROTTLING_QUOTA_EXCEEDED),
    ],
)
def test_a_client_with_an_old_subscription_or_codec_asks_again_at_once(wrong: Any, expected: ErrorCode) -> None:
    instance = found(clients(), 0)
    assert ask(instance, 0) == ErrorCode.NONE
    push(instance, 1, **wrong)
    assert ask(instance, 2) == expected


def test_a_changed_subscription_is_given_at_once_under_another_id() -> None:
    instances = clients()
    before = found(instances, 0)
    assert ask(before, 0) == ErrorCode.NONE
    instances.subscribe([Subscription(("org.apache.kafka.consumer",), 10_000, {})])
    after = found(instances, 1)
    assert after is not before
    assert ask(after, 1) == ErrorCode.NONE
    assert after.subscription_id != before.subscription_id
    assert push(after, 1, subscription=before.subscription_id) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID


def test_a_subscription_that_changes_while_it_is_selected_is_selected_again() -> None:
    instances = ClientInstances()
    instances.subscribe([Subscription(("a",), 10_000, {"client_id": "orders-.*"})])
    selecting = instances.of(ID, CLIENT, 0)
    job = next(selecting)
    instances.subscribe([Subscription(("b",), 10_000, {})])
    assert job is not None
    with pytest.raises(StopIteration) as ended:
        selecting.send(job())
    assert ended.value.value.subscribed.metrics == ("b",)


def test_a_silent_client_is_forgotten() -> None:
    instances = clients(interval_ms=100)
    assert ask(found(instances, 0), 0) == ErrorCode.NONE
    known = found(instances, 60)
    assert known.last_get == 0
    assert found(instances, 121).last_get == client_instances.NEVER
    slow = clients(interval_ms=100_000)
    first = found(slow, 0)
    assert found(slow, 299) is first


def test_a_client_whose_connection_ended_is_forgotten() -> None:
    instances = clients()
    first = found(instances, 0)
    instances.forget(ID)
    assert len(instances) == 0
    assert found(instances, 0) is not first


def test_the_number_of_clients_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_instances, "MAX_INSTANCES", 3)
    instances = clients()
    first = found(instances, 0)
    for number in range(3):
        found(instances, 1, bytes([number] * 16))
    assert len(instances) == 3
    assert found(instances, 2) is not first


def test_an_unused_id_is_one_that_no_client_has() -> None:
    instances = clients()
    found(instances, 0)
    drawn = iter([ID, b"n" * 16])
    assert instances.unused_id(lambda: next(drawn)) == b"n" * 16
