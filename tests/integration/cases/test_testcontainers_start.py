"""Tests that the image for testcontainers starts in the way in which the modules of testcontainers start Kafka: with
their variables, and with a script that they copy into the container. No container is needed: the test creates the paths
of the image below a temporary directory.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from oncelog import Consumer, Producer
from oncelog_broker.local_cluster.ports import own_ports
from oncelog_testing.container_start import broker_environment

DEPLOY = Path(__file__).parents[3] / "deploy" / "testcontainers"
START_SECONDS = 60
COMMON = {
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_BROKER_ID": "1",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
}
KRAFT = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
}


class Module(NamedTuple):
    """How one module starts Kafka: the shell of its script, the script, the log line for which it waits, and its
    variables.
    """

    shell: str
    script: str
    waits_for: str
    variables: dict[str, str]


MODULES = {
    "java": Module("bash", "/etc/kafka/docker/run\n", "Transitioning from RECOVERY to RUNNING", {**COMMON, **KRAFT}),
    "go": Module(
        "bash",
        "source /etc/confluent/docker/bash-config\n"
        "sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure\n"
        "echo 'kafka-storage format -t \"$(kafka-storage random-uuid)\" -c /etc/kafka/kafka.properties'"
        " >> /etc/confluent/docker/configure\n"
        "echo '' > /etc/confluent/docker/ensure\n"
        "/etc/confluent/docker/configure\n"
        "/etc/confluent/docker/launch\n",
        "Transitioning from RECOVERY to RUNNING",
        {**COMMON, **KRAFT, "KAFKA_REST_BOOTSTRAP_SERVERS": "PLAINTEXT://0.0.0.0:9093"},
    ),
    "node": Module(
        "bash",
        "echo '' > /etc/confluent/docker/ensure\n"
        "echo 'clientPort=2181' > zookeeper.properties\n"
        "zookeeper-server-start zookeeper.properties &\n"
        "/etc/confluent/docker/run\n",
        " ready on ",
        {**COMMON, "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181", "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE": "false"},
    ),
    "python": Module(
        "sh",
        "echo 'clientPort=2181' > zookeeper.properties\n"
        "zookeeper-server-start zookeeper.properties &\n"
        "export KAFKA_ZOOKEEPER_CONNECT='localhost:2181'\n"
        ". /etc/confluent/docker/bash-config\n"
        "/etc/confluent/docker/configure\n"
        "/etc/confluent/docker/launch\n",
        "[KafkaServer id=1] started",
        COMMON,
    ),
}


def image(root: Path) -> None:
    """Copy the files of the image below `root`, to the paths to which its Dockerfile copies them."""
    for line in (DEPLOY / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY"):
            source, target = line.split()[-2:]
            path = root / target.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(DEPLOY.parents[1] / source, path)
            path.chmod(0o755)


@contextmanager
def started(module: Module, root: Path, port: int, broker_port: int) -> Iterator[None]:
    """Start the broker, and yield when it has printed the line for which the module waits."""
    image(root)
    advertised = f"PLAINTEXT://127.0.0.1:{port},BROKER://127.0.0.1:{broker_port}"
    text = f"#!/bin/{module.shell}\nexport KAFKA_ADVERTISED_LISTENERS={advertised}\n{module.script}"
    script = root / "start.sh"
    script.write_text(text.replace("/etc/", f"{root}/etc/"))
    names = "PLAINTEXT:PLAINTEXT,BROKER:PLAINTEXT"
    listeners = f"PLAINTEXT://0.0.0.0:{port},BROKER://0.0.0.0:{broker_port}"
    if "KAFKA_PROCESS_ROLES" in module.variables:
        names, listeners = f"{names},CONTROLLER:PLAINTEXT", f"{listeners},CONTROLLER://0.0.0.0:9094"
    environment = {
        **os.environ,
        **module.variables,
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": names,
        "KAFKA_LISTENERS": listeners,
        "ONCELOG_CONTAINER_DATA": str(root / "data"),
        "PATH": f"{root}/usr/local/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    log = root / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [module.shell, str(script)],
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        asyncio.run(_shows(log, module.waits_for, process))
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(START_SECONDS)


async def _shows(log: Path, wanted: str, process: subprocess.Popen[bytes]) -> None:
    async with asyncio.timeout(START_SECONDS):
        while wanted not in log.read_text():
            assert process.poll() is None, log.read_text()
            await asyncio.sleep(0.05)


async def there_and_back(address: str) -> bytes | None:
    async with Producer(address) as producer:
        await producer.send_and_wait("orders", b"7")
    async with Consumer(address, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        record = await consumer.poll_one(30_000)
    return None if record is None else record.value


@pytest.mark.parametrize("name", MODULES)
def test_a_broker_starts_as_the_module_starts_kafka(name: str, tmp_path: Path) -> None:
    ports = own_ports(2)
    with started(MODULES[name], tmp_path, *(port.number for port in ports)):
        assert asyncio.run(there_and_back(f"127.0.0.1:{ports[0].number}")) == b"7"


def test_nothing_of_a_controller_or_a_zookeeper_reaches_the_broker() -> None:
    given = {
        **COMMON,
        **KRAFT,
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,BROKER://:9093,CONTROLLER://:9094",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181",
        "PATH": "/bin",
    }
    kept = broker_environment(given)
    assert kept["KAFKA_LISTENERS"] == "PLAINTEXT://:9092,BROKER://:9093"
    assert kept["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"] == "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    assert not [name for name in kept if "CONTROLLER" in name or "ZOOKEEPER" in name or name == "KAFKA_BROKER_ID"]
    assert (kept["KAFKA_NODE_ID"], kept["PATH"]) == ("1", "/bin")
