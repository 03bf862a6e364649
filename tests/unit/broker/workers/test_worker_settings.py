"""The settings of workers: ports that follow the configured ones, ids, directories, racks and replication factors."""

from __future__ import annotations

import pytest

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.config.listeners import Listener
from oncelog_broker.workers.worker_settings import ports_needed, worker_count, worker_settings


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig.of({name.replace("_", "."): value for name, value in settings.items()})


def own_listeners(given: BrokerConfig, number: int) -> tuple[Listener, ...]:
    return ports_needed(given, number).own[number - 1]


def settings_of(given: BrokerConfig, number: int) -> dict[str, str]:
    return worker_settings(given, number, [f"/data/worker{number}"], own_listeners(given, number), "machine")


def test_a_worker_has_an_id_a_directory_and_a_port_of_its_own() -> None:
    given = config(listeners="PLAINTEXT://127.0.0.1:9092", node_id="7")
    found = settings_of(given, 2)
    assert found["node.id"] == "8"
    assert found["log.dirs"] == "/data/worker2"
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9094"
    assert "advertised.listeners" not in found
    assert "http.listener" not in found


def test_the_ports_of_several_listeners_do_not_meet() -> None:
    given = config(listeners="PLAINTEXT://:9092,SSL://:9093")
    needed = ports_needed(given, 3)
    assert [[each.port for each in of_worker] for of_worker in needed.own] == [[9094, 9095], [9096, 9097], [9098, 9099]]
    assert [each.port for each in needed.shared] == [9092, 9093]


@pytest.mark.parametrize(
    ("listeners", "says"),
    [
        ("PLAINTEXT://:9092,SSL://:9094", "the same port"),
        ("PLAINTEXT://:65534", "65536 is no port"),
    ],
)
def test_ports_that_meet_or_do_not_exist_are_refused(listeners: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        ports_needed(config(listeners=listeners), 2)


def test_port_0_stays_any_port() -> None:
    needed = ports_needed(config(listeners="PLAINTEXT://127.0.0.1:0"), 2)
    assert {each.port for of_worker in (needed.shared, *needed.own) for each in of_worker} == {0}


def test_advertised_ports_follow_as_well() -> None:
    given = config(listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://broker.example:19092")
    assert settings_of(given, 2)["advertised.listeners"] == "PLAINTEXT://broker.example:19094"
    given = config(listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://broker.example:0")
    assert settings_of(given, 2)["advertised.listeners"] == "PLAINTEXT://broker.example:9094"


def test_the_http_listener_of_each_worker_has_the_next_port() -> None:
    given = config(http_listener="0.0.0.0:9464")
    assert [settings_of(given, number)["http.listener"] for number in (1, 2)] == ["0.0.0.0:9464", "0.0.0.0:9465"]
    assert settings_of(config(http_listener="0"), 2)["http.listener"] == "127.0.0.1:0"


def test_workers_of_one_machine_have_one_rack() -> None:
    assert settings_of(config(), 1)["broker.rack"] == settings_of(config(), 2)["broker.rack"] == "machine"
    assert "broker.rack" not in settings_of(config(broker_rack="az1"), 1)


def test_internal_topics_have_one_replica_unless_settings_or_other_machines_say_otherwise() -> None:
    keys = (
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    )
    assert {key: settings_of(config(), 1)[key] for key in keys} == dict.fromkeys(keys, "1")
    assert "offsets.topic.replication.factor" not in settings_of(config(offsets_topic_replication_factor="2"), 1)
    assert not keys & settings_of(config(zookeeper_connect="zk:2181"), 1).keys()


def test_the_number_of_workers() -> None:
    assert worker_count("3", cores=8) == 3
    assert worker_count("auto", cores=8) == 8
    for text in ("0", "-1", "257", "two", ""):
        with pytest.raises(ValueError, match="from 1 to 256"):
            worker_count(text, cores=8)
