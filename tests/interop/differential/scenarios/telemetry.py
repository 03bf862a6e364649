"""Compares GetTelemetrySubscriptions and PushTelemetry (KIP-714) with and without subscriptions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import PATIENCE_SECONDS, PAUSE_SECONDS, ScenarioBroken, Side

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.describe_configs import ResourceType
from oncelog_protocol.messages.incremental_alter_configs import ConfigOperation

KEYS: Final = ("metrics", "interval_ms", "match")


def set_subscription(side: Side, **configs: str) -> None:
    """Set the keys of the scenario's only subscription. Raises ScenarioBroken."""
    _alter(side, ConfigOperation.SET, configs)


def remove_subscription(side: Side) -> None:
    """Delete the subscription, because it would apply to the clients of other scenarios. Raises ScenarioBroken."""
    _alter(side, ConfigOperation.DELETE, dict.fromkeys(KEYS))


def _alter(side: Side, operation: ConfigOperation, configs: Mapping[str, str | None]) -> None:
    resource = {
        "resource_type": int(ResourceType.CLIENT_METRICS),
        "resource_name": side.own("s"),
        "configs": [
            {"name": key.replace("_", "."), "config_operation": int(operation), "value": value}
            for key, value in configs.items()
        ],
    }
    answer = side.get(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    if answer.responses[0].error_code:
        raise ScenarioBroken(f"{side.name}: {answer}")


def await_metrics(side: Side, client: str, *metrics: str) -> None:
    """Wait until new clients with this client id are asked for exactly these metrics, since brokers apply a changed
    subscription after the response. Raises ScenarioBroken.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        asked = {"client_instance_id": bytes(16)}
        answer = side.get(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, asked, client_id=side.own(client))
        if set(answer.requested_metrics) == set(metrics):
            return
        time.sleep(PAUSE_SECONDS)
    raise ScenarioBroken(f"{side.name}: {answer}")


def get(side: Side, label: str, instance: bytes = bytes(16), *, client: str = "differential") -> Any:
    asked = {"client_instance_id": instance}
    return side.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, asked, label, client_id=side.own(client), connection=client)


def push(
    side: Side,
    label: str,
    instance: bytes,
    subscription_id: int,
    *,
    metrics: bytes = b"",
    compression: int = 0,
    terminating: bool = False,
    client: str = "differential",
) -> None:
    asked = {
        "client_instance_id": instance,
        "subscription_id": subscription_id,
        "terminating": terminating,
        "compression_type": compression,
        "metrics": metrics,
    }
    side.ask(ApiKey.PUSH_TELEMETRY, 0, asked, label, client_id=side.own(client), connection=client)


@scenario
def subscriptions(side: Side) -> None:
    """Ask for the subscriptions of clients that match and of clients that do not match."""
    get(side, "no subscription")
    set_subscription(side, metrics="org.apache.kafka.consumer.,org.apache.kafka.producer.", interval_ms="60000")
    await_metrics(side, "every", "org.apache.kafka.consumer.", "org.apache.kafka.producer.")
    get(side, "every client", client="every")
    set_subscription(side, match=f"client_id={side.own('one')}.*")
    await_metrics(side, "other")
    get(side, "a client that matches", client="one-client")
    get(side, "another client", client="other")
    set_subscription(side, metrics="*")
    await_metrics(side, "one", "*")
    get(side, "all metrics", client="one-client-more")
    answer = get(side, "an id of the client's own", b"i" * 16, client="one-own")
    get(side, "too early again", b"i" * 16, client="one-own")
    push(side, "before the interval", b"i" * 16, answer.subscription_id, client="one-own")
    set_subscription(side, metrics="")
    await_metrics(side, "one")
    get(side, "no metrics", client="one-none")
    remove_subscription(side)
    get(side, "the subscription is deleted", client="one-later")


@scenario
def pushes(side: Side) -> None:
    """Push metrics with right and wrong ids, codecs and sizes. Each push is the first one of its client instance,
    because a client may push only once in an interval.
    """
    set_subscription(side, metrics="*", interval_ms="60000", match=f"client_id={side.own('one')}.*")
    await_metrics(side, "one", "*")

    def first_push(label: str, *, more_id: int = 0, **said: Any) -> bytes:
        client = f"one-{label.replace(' ', '-')}"
        answer = get(side, label, client=client)
        instance = bytes(answer.client_instance_id)
        push(side, label, instance, answer.subscription_id + more_id, client=client, **said)
        push(side, f"{label}, again", instance, answer.subscription_id, client=client)
        return instance

    first_push("nothing")
    first_push("wrong subscription", more_id=1)
    first_push("unknown codec", compression=9)
    first_push("garbage", metrics=b"\xff" * 20)
    first_push("garbage gzip", metrics=b"\xff" * 20, compression=1)
    first_push("large", metrics=bytes(1_100_000))
    client = "one-terminating"
    answer = get(side, "terminating", client=client)
    instance = bytes(answer.client_instance_id)
    push(side, "terminating", instance, answer.subscription_id, terminating=True, client=client)
    push(side, "after the last push", instance, answer.subscription_id, client=client)
    push(side, "terminating again", instance, answer.subscription_id, terminating=True, client=client)
    get(side, "after the last push", instance, client=client)
    push(side, "no instance", bytes(16), answer.subscription_id)
    push(side, "the reserved instance", bytes(15) + b"\1", answer.subscription_id)
    push(side, "an unknown instance", b"u" * 16, answer.subscription_id)
    remove_subscription(side)
