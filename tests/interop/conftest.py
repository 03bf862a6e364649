"""Fetches, builds and starts Java's kafka-clients, kafkajs and Apache Kafka's broker; tests are skipped if their tools
or registries are missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration"), str(HERE.parent / "cluster")]
pytest.register_assert_rewrite("client_contract", "test_client")

import integration_folders  # noqa: E402, F401  where helpers of tests/integration are
from apache_kafka import ApacheKafka  # noqa: E402
from broker_process import BrokerFactory, BrokerProcess  # noqa: E402
from foreign_clients import BROKERS  # noqa: E402
from line_client import LineClient  # noqa: E402
from maven import BUILD, Unavailable, fetch, jars, need  # noqa: E402
from shared_cluster import is_asked_for, shared_cluster  # noqa: E402, F401  a fixture

RELEASES = ("3.9.1", "4.1.0")
JAVA_HEAP = "-Xmx64m"
COMPILE_SECONDS = 120

T = TypeVar("T")


@pytest.fixture(scope="session")
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the brokers that the clients use; the environment variables `ONCELOG_TEST_ADDRESS` and
    `ONCELOG_TEST_BROKERS` have the same meaning as in `tests/integration`.
    """
    if foreign := os.environ.get("ONCELOG_TEST_ADDRESS"):
        yield foreign
        return
    if is_asked_for(BROKERS):
        yield request.getfixturevalue("shared_cluster").addresses
        return
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker.address
        assert "Traceback" not in broker.log.read_text()


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session", params=RELEASES)
def apache_kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache Kafka of one release: one process for all tests, each of which uses its own topics."""
    data = tmp_path_factory.mktemp("apache") / "data"
    with or_skip(lambda: ApacheKafka(request.param, data)) as kafka:
        yield kafka


@pytest.fixture
def broker_factory(tmp_path: Path) -> Iterator[BrokerFactory]:
    """Yield `broker_factory(settings, data)`, which creates oncelog brokers for one test; they are stopped when the
    test ends.
    """
    started: list[BrokerProcess] = []

    def make(settings: dict[str, str] | None = None, data: Path | None = None) -> BrokerProcess:
        process = BrokerProcess(data or tmp_path / f"data{len(started)}", settings)
        started.append(process)
        return process

    yield make
    for process in started:
        if process.is_running:
            process.stop()


@pytest.fixture(scope="session", params=RELEASES)
def java(
    request: pytest.FixtureRequest, address: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LineClient]:
    """A test program for Java's client, compiled against one release of kafka-clients."""
    or_skip(lambda: need("java", "javac", "mvn"))
    libraries = or_skip(lambda: jars(HERE / "java" / "pom.xml", request.param, "java"))
    source = HERE / "java" / "InteropClient.java"
    compiled = subprocess.run(
        ["javac", "-cp", f"{libraries}/*", "-d", str(libraries), str(source)],
        capture_output=True,
        text=True,
        timeout=COMPILE_SECONDS,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stderr
    options = [JAVA_HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{libraries}:{libraries}/*"]
    log = tmp_path_factory.mktemp("java") / "client.log"
    client = LineClient(f"Java {request.param}", ["java", *options, "InteropClient", address], log)
    yield client
    client.close()


@pytest.fixture(scope="session")
def kafkajs(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LineClient]:
    or_skip(lambda: need("node", "npm"))
    directory = BUILD / "node"
    if not (directory / "node_modules" / "kafkajs").exists():
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "node" / "package.json", directory)
        command = ["npm", "install", "--prefix", str(directory), "--no-audit", "--no-fund", "--ignore-scripts"]
        or_skip(lambda: fetch([*command, "--no-save"], "kafkajs"))
    shutil.copy(HERE / "node" / "interop_client.js", directory)
    log = tmp_path_factory.mktemp("node") / "client.log"
    client = LineClient("kafkajs", ["node", str(directory / "interop_client.js"), address], log)
    client.compressions = (None, "gzip", "snappy", "zstd")  # the lz4 library of kafkajs needs a compiler
    client.sends_null_headers = False
    yield client
    client.close()


def or_skip(get: Callable[[], T]) -> T:
    try:
        return get()
    except Unavailable as reason:
        pytest.skip(str(reason))
