"""The deployment files contain settings that a broker accepts, and correct addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from oncelog_broker.config import broker_keys, topic_defaults
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.http_keys import HTTP_LISTENER, http_address
from oncelog_broker.config.listeners import advertised_listeners, inter_broker_listener, listeners
from oncelog_broker.config.load import load_broker_config

ROOT = Path(__file__).parents[2]
PROPERTIES = ROOT / "deploy" / "broker.properties"
SPARK = "docker-compose.spark.yml"
FILES = {"docker-compose.yml": 3, "docker-compose.single.yml": 1, SPARK: 1}
PINNED = re.compile(r":[\w.-]+@sha256:[0-9a-f]{64}\b")


def brokers_of(file: str) -> dict[str, dict[str, Any]]:
    services = yaml.safe_load((ROOT / file).read_text())["services"]
    return {name: service for name, service in services.items() if name.startswith("broker")}


def started_with(environment: Mapping[str, str]) -> BrokerConfig:
    """Return the settings of a broker in a container: those of the file in the image, overridden by the environment."""
    return load_broker_config(PROPERTIES, environment)


def bound_and_advertised(config: BrokerConfig) -> tuple[dict[str, int], dict[str, tuple[str, int]]]:
    bound = {listener.name: listener.port for listener in listeners(config)}
    return bound, {each.name: (each.host, each.port) for each in advertised_listeners(config, "")}


@pytest.mark.parametrize("file", FILES)
def test_each_broker_of_a_compose_file_is_found_from_inside_and_from_outside(file: str) -> None:
    brokers = brokers_of(file)
    assert len(brokers) == FILES[file]
    ids = set()
    for name, service in brokers.items():
        config = started_with(service["environment"])
        ids.add(config[broker_keys.NODE_ID])
        bound, advertised = bound_and_advertised(config)
        assert advertised["INTERNAL"] == (name, bound["INTERNAL"])
        assert inter_broker_listener(config) == "INTERNAL"
        host, port = advertised["HOST"]
        assert host == "localhost"
        assert service["ports"][0] == f"127.0.0.1:{port}:{bound['HOST']}"
    assert len(ids) == len(brokers), "each has an id of its own"


@pytest.mark.parametrize("file", ["docker-compose.yml", "docker-compose.single.yml"])
def test_metrics_and_health_of_each_broker_of_a_compose_file_are_at_a_port_of_its_own(file: str) -> None:
    seen = set()
    for service in brokers_of(file).values():
        inside = listening(started_with(service["environment"]))
        (published,) = [port.rsplit(":", 1) for port in service["ports"][1:]]
        assert published[0].startswith("127.0.0.1:"), "nobody logs in there"
        assert int(published[1]) == inside
        seen.add(published[0])
    assert len(seen) == FILES[file]


def listening(config: BrokerConfig) -> int:
    """Return the port of the HTTP listener, which listens on every interface of the container."""
    address = http_address(config[HTTP_LISTENER] or "")
    assert address.host == "0.0.0.0"
    return address.port


@pytest.mark.parametrize(("file", "brokers"), FILES.items())
def test_as_many_copies_are_asked_for_as_there_are_brokers(file: str, brokers: int) -> None:
    for service in brokers_of(file).values():
        config = started_with(service["environment"])
        assert config[broker_keys.DEFAULT_REPLICATION_FACTOR] == brokers
        assert config[topic_defaults.MIN_INSYNC_REPLICAS] == max(1, brokers - 1)


@pytest.mark.parametrize("file", FILES)
def test_data_of_a_compose_file_is_in_named_volumes(file: str) -> None:
    """`docker compose down` would leave an unnamed volume behind, and `up` would create a new one."""
    composed = yaml.safe_load((ROOT / file).read_text())
    mounted = [volume for service in composed["services"].values() for volume in service.get("volumes", [])]
    kept = {volume.partition(":")[0] for volume in mounted if not volume.startswith("./")}
    assert kept == composed["volumes"].keys()
    config = started_with({})
    for service in brokers_of(file).values():
        assert config.log_dirs[0].startswith(service["volumes"][0].partition(":")[2])


def test_each_broker_of_the_stateful_set_is_found_by_its_own_name() -> None:
    documents = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text()))
    stateful = next(each for each in documents if each["kind"] == "StatefulSet")
    services = {each["metadata"]["name"]: each["spec"] for each in documents if each["kind"] == "Service"}
    pod = stateful["spec"]["template"]["spec"]
    assert pod["enableServiceLinks"] is False, "ONCELOG_PORT would be taken for a setting"
    given = {"POD_NAME": "oncelog-2", "POD_NAMESPACE": "streams", "ONCELOG_NODE_ID": "2"}
    for variable in pod["containers"][0]["env"]:
        if "value" in variable:
            given[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda name: given[name[1]], variable["value"])
    bound, advertised = bound_and_advertised(started_with(given))
    name = f"oncelog-2.{stateful['spec']['serviceName']}.streams.svc"
    assert advertised == {listener: (name, port) for listener, port in bound.items()}
    published = {port["port"] for port in services[stateful["spec"]["serviceName"]]["ports"]}
    assert published == {*bound.values(), listening(started_with(given))}
    assert {port["port"] for port in services["oncelog"]["ports"]} == {bound["HOST"]}


def test_kubernetes_probes_and_prometheus_ask_the_port_of_the_http_listener() -> None:
    documents = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text()))
    stateful = next(each for each in documents if each["kind"] == "StatefulSet")
    template = stateful["spec"]["template"]
    container = template["spec"]["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["metrics"] == listening(started_with({}))
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(ports["metrics"])
    for probe, path in (("startupProbe", "/health/ready"), ("livenessProbe", "/health/live")):
        assert container[probe]["httpGet"] == {"path": path, "port": "metrics"}
    monitor = yaml.safe_load((ROOT / "deploy" / "prometheus" / "podmonitor.yaml").read_text())
    assert monitor["spec"]["selector"] == stateful["spec"]["selector"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("metrics", "/metrics")
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "oncelog"}]


def test_images_are_pinned() -> None:
    bases = [PINNED.search((ROOT / "deploy" / file).read_text()) for file in ("Dockerfile", "spark.Dockerfile")]
    assert bases[0] and bases[1] and bases[0][0] == bases[1][0]
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    images = {service["image"] for service in services.values() if "image" in service}
    assert images and all(PINNED.search(image) for image in images)


@pytest.mark.parametrize("file", ["oncelog.service", "Dockerfile"])
def test_brokers_start_with_the_existing_configuration(file: str) -> None:
    assert "/etc/oncelog/broker.properties" in (ROOT / "deploy" / file).read_text()


def test_the_containers_of_spark_see_one_another() -> None:
    """The containers use the name and port of the master, and share the volume of checkpoints."""
    services = yaml.safe_load((ROOT / SPARK).read_text())["services"]
    master, pipeline = services["spark-master"]["command"], services["pipeline"]
    url = f"spark://{master[master.index('--host') + 1]}:{master[master.index('--port') + 1]}"
    assert url.startswith("spark://spark-master:")
    workers = [service for name, service in services.items() if name.startswith("spark-worker")]
    assert len(workers) == 2
    assert all(worker["command"][-1] == url for worker in workers)
    options = dict(option.split("=") for option in pipeline["command"] if "=" in option)
    assert options["--master"] == url
    for service in (*workers, pipeline):
        assert f"orders:{options['--directory']}" in service["volumes"]
    config = started_with(services["broker"]["environment"])
    host, port = bound_and_advertised(config)[1]["INTERNAL"]
    assert pipeline["environment"]["ONCELOG_BOOTSTRAP_SERVER"] == f"{host}:{port}"


def test_the_deployed_pipeline_command_is_valid() -> None:
    pytest.importorskip("pyspark")
    from examples.orders.pipeline import parser

    pipeline = yaml.safe_load((ROOT / SPARK).read_text())["services"]["pipeline"]
    assert pipeline["command"][:3] == ["python", "-m", "examples.orders.pipeline"]
    parser().parse_args(pipeline["command"][3:])
