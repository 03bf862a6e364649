"""Java's kafka-clients and kafkajs, fetched, built and started; skipped where their tools or registries are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]
pytest.register_assert_rewrite("client_contract")

from broker_process import BrokerProcess  # noqa: E402
from line_client import LineClient  # noqa: E402

BUILD = HERE.parents[1] / "build" / "interop"
FETCH_SECONDS = 300
JAVA_RELEASES = ("3.9.1", "4.1.0")
JAVA_HEAP = "-Xmx64m"


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the clients find a broker; `ONCELOG_TEST_ADDRESS` as for the integration tests."""
    if foreign := os.environ.get("ONCELOG_TEST_ADDRESS"):
        yield foreign
        return
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker.address
        assert "Traceback" not in broker.log.read_text()


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session", params=JAVA_RELEASES)
def java(
    request: pytest.FixtureRequest, address: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LineClient]:
    """Java's client of one release, compiled against it."""
    _need("java", "javac", "mvn")
    libraries = BUILD / f"java-{request.param}"
    source = HERE / "java" / "InteropClient.java"
    if not list(libraries.glob("kafka-clients-*.jar")):
        _run(
            [
                *("mvn", "-q", "-B", "-f", str(HERE / "java" / "pom.xml"), "dependency:copy-dependencies"),
                *(f"-Dkafka.version={request.param}", f"-DoutputDirectory={libraries}"),
            ],
            "kafka-clients cannot be fetched",
        )
    compiled = subprocess.run(
        ["javac", "-cp", f"{libraries}/*", "-d", str(libraries), str(source)],
        capture_output=True,
        text=True,
        timeout=FETCH_SECONDS,
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
    _need("node", "npm")
    directory = BUILD / "node"
    if not (directory / "node_modules" / "kafkajs").exists():
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "node" / "package.json", directory)
        _run(
            ["npm", "install", "--prefix", str(directory), "--no-audit", "--no-fund", "--ignore-scripts", "--no-save"],
            "kafkajs cannot be fetched",
        )
    shutil.copy(HERE / "node" / "interop_client.js", directory)
    log = tmp_path_factory.mktemp("node") / "client.log"
    client = LineClient("kafkajs", ["node", str(directory / "interop_client.js"), address], log)
    client.compressions = (None, "gzip", "snappy", "zstd")  # its lz4 needs a compiler
    client.sends_null_headers = False
    yield client
    client.close()


def _need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def _run(command: Sequence[str], why_skipped: str) -> None:
    """Fetch something. Skips where it cannot be had; a half-made directory is no harm, the next run goes on."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{why_skipped}: no answer in {FETCH_SECONDS} s")
    if result.returncode:
        pytest.skip(f"{why_skipped}: {(result.stderr or result.stdout).strip()[-300:]}")
