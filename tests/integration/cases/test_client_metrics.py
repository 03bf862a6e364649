"""Tests that clients push their metrics without further calls as soon as a subscription matches them (KIP-714)."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from confluent_kafka import Consumer, Producer
from foreign_clients import eventually
from prometheus_client.parser import text_string_to_metric_families
from raw_client import RawClient
from test_metrics import http_of

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.describe_configs import ResourceType as Resource
from oncelog_protocol.messages.incremental_alter_configs import ConfigOperation, IncrementalAlterConfigsRequest
from oncelog_protocol.messages.list_config_resources import ListConfigResourcesRequest

INTERVAL_MS = "200"


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("metrics") / "data", {"http.listener": "0"})
    broker.start()
    yield broker
    broker.stop()


def subscribe(broker: BrokerProcess, name: str, settings: dict[str, str]) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        resource.AlterableConfig(name=key, config_operation=ConfigOperation.SET, value=value)
        for key, value in settings.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=Resource.CLIENT_METRICS, resource_name=name, configs=configs)],
        validate_only=False,
    )
    with RawClient(broker.port) as client:
        assert client.call(request, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1).responses[0].error_code == 0


def pushed(broker: BrokerProcess, client_id: str) -> dict[str, float]:
    """The sum of each metric that clients with this id have pushed, by its name."""
    with urllib.request.urlopen(f"{http_of(broker)}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("oncelog_client_metric") and sample.labels.get("client_id") == client_id:
                name = sample.labels["metric"]
                found[name] = found.get(name, 0.0) + sample.value
    return found


def test_librdkafka_pushes_what_is_subscribed(telling: BrokerProcess, topic: str) -> None:
    wanted = "org.apache.kafka.producer.connection.creation."
    subscribe(telling, "producers", {"metrics": wanted, "interval.ms": INTERVAL_MS, "match": "client_id=pushes-.*"})
    address = {"bootstrap.servers": f"127.0.0.1:{telling.port}"}
    producer, other = Producer(address | {"client.id": "pushes-1"}), Producer(address | {"client.id": "silent-1"})
    for each in (producer, other):
        each.produce(topic, b"x")
        each.flush()
    eventually(lambda: bool(pushed(telling, "pushes-1")), "the producer has pushed its metrics")
    found = pushed(telling, "pushes-1")
    assert all(name.startswith(wanted) for name in found)
    assert f"{wanted}total" in found
    assert pushed(telling, "silent-1") == {}


def test_a_consumer_pushes_again_and_again_and_once_more_at_its_end(telling: BrokerProcess, topic: str) -> None:
    subscribe(telling, "consumers", {"metrics": "*", "interval.ms": INTERVAL_MS, "match": "client_id=reads-.*"})
    settings = {"bootstrap.servers": f"127.0.0.1:{telling.port}", "client.id": "reads-1", "group.id": topic}
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        consumer.poll(0.1)
        eventually(lambda: bool(pushed(telling, "reads-1")), "the consumer has pushed its metrics")
    assert any(name.startswith("org.apache.kafka.consumer.") for name in pushed(telling, "reads-1"))


def test_subscriptions_survive_a_kill_and_end_with_their_last_setting(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", {"http.listener": "0"})
    broker.start()
    subscribe(broker, "lag", {"metrics": "*", "interval.ms": "1000"})
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        listed = client.call(ListConfigResourcesRequest(), ApiKey.LIST_CONFIG_RESOURCES, 0)
        assert [each.resource_name for each in listed.config_resources] == ["lag"]
    broker.stop()
