"""Fixtures for the tests that need a live broker process.

`ONCELOG_TEST_ADDRESS=host:port` runs the foreign clients' tests against another running broker, such as Apache Kafka;
that is possible because these tests check behaviour that Kafka defines.

`ONCELOG_TEST_BROKERS=3` runs these tests against three brokers that keep three replicas of each partition.

`ONCELOG_TEST_METADATA=zookeeper` makes all brokers keep their metadata in ZooKeeper; their behaviour must be the same.
"""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "cluster")]
pytest.register_assert_rewrite("client_contract")

import integration_folders  # noqa: E402, F401  where the modules below are
from broker_process import BrokerFactory, BrokerProcess  # noqa: E402
from foreign_clients import BROKERS  # noqa: E402
from hanging import unguarded_broker  # noqa: E402
from raw_client import RawClient  # noqa: E402
from shared_cluster import is_asked_for, shared_cluster  # noqa: E402, F401  a fixture

LOG_CHARACTERS = 10_000
MEMORY_DISK = Path("/dev/shm")
MEMORY_DISK_ROOM = 1 << 30

FOREIGN_ADDRESS = os.environ.get("ONCELOG_TEST_ADDRESS")
IN_ZOOKEEPER = os.environ.pop("ONCELOG_TEST_METADATA", "") == "zookeeper"
"""The environment variable is removed after it was read, because brokers would interpret it as a setting."""


@pytest.fixture(scope="session", autouse=IN_ZOOKEEPER)
def all_in_zookeeper(request: pytest.FixtureRequest) -> None:
    if IN_ZOOKEEPER:
        BrokerProcess.new_chroot = staticmethod(request.getfixturevalue("chroots"))  # type: ignore[assignment]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the log lines of its brokers."""
    report = yield
    if report.failed:
        for broker in BrokerProcess.started:
            if broker.log.exists() and (logged := broker.log.read_text()):
                report.sections.append((f"log of the broker with {broker.data}", logged[-LOG_CHARACTERS:]))
    return report


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of a module; each test uses its own topics."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", {"log.segment.bytes": "1048576"})
    with process:
        yield process
    assert "Traceback" not in process.log.read_text()


@pytest.fixture(scope="module")
def address(request: pytest.FixtureRequest) -> str:
    """The address of the broker that the foreign clients use."""
    if FOREIGN_ADDRESS:
        return FOREIGN_ADDRESS
    if is_asked_for(BROKERS):
        return str(request.getfixturevalue("shared_cluster").addresses)
    broker: BrokerProcess = request.getfixturevalue("broker")
    return broker.address


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[RawClient]:
    """A connection to the broker of this module."""
    with RawClient(broker.port) as client:
        yield client


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of a module, on which transactions can hang."""
    with unguarded_broker(tmp_path_factory.mktemp("unguarded") / "data") as process:
        yield process


@pytest.fixture
def in_a_file() -> None:
    """A fixture for tests of the file in which a single broker keeps its metadata: in these tests, brokers never use
    ZooKeeper.
    """
    if IN_ZOOKEEPER:
        pytest.skip("in this run no broker keeps its metadata in a file")


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    """The name of a group that no other test uses."""
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def broker_factory(tmp_path: Path) -> Iterator[BrokerFactory]:
    """Yield `broker_factory(settings)`, which creates brokers for one test; they are stopped when the test ends."""
    started: list[BrokerProcess] = []

    def make(settings: dict[str, str] | None = None, data: Path | None = None) -> BrokerProcess:
        process = BrokerProcess(data or tmp_path / f"data{len(started)}", settings)
        started.append(process)
        return process

    yield make
    for process in started:
        if process.is_running:
            process.stop()


@pytest.fixture
def undisturbed_directory(tmp_path: Path) -> Iterator[Path]:
    """A data directory in memory, if possible, because a test that measures waiting times would otherwise also measure
    how busy other tests keep the disk.
    """
    try:
        has_room = shutil.disk_usage(MEMORY_DISK).free >= MEMORY_DISK_ROOM
    except OSError:
        has_room = False
    if not has_room:
        yield tmp_path
        return
    with TemporaryDirectory(dir=MEMORY_DISK, prefix="oncelog-") as directory:
        yield Path(directory)


@pytest.fixture
def sabotage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Yield the function `sabotage(code)`: brokers that this test starts after the call run `code` before anything
    else; the code "" ends this.
    """

    def set_code(code: str) -> None:
        directory = tmp_path / "sabotage"
        directory.mkdir(exist_ok=True)
        (directory / "sitecustomize.py").write_text(code)
        path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if str(directory) not in path:
            monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(directory), *path]))

    return set_code


TOO_FEW_REPLICAS = """
import os
from oncelog_broker.replication.partition import Partition
from oncelog_protocol.errors import ErrorCode, KafkaError

append = Partition.append

def append_where_enough_are_in_sync(self, records, **options):
    if os.path.exists(os.path.join({directory!r}, self.topic)):
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    return append(self, records, **options)

Partition.append = append_where_enough_are_in_sync
"""


@pytest.fixture
def too_few_in_sync(tmp_path: Path, sabotage: Callable[[str], None]) -> Callable[[str, bool], None]:
    """Yield the function `too_few_in_sync(topic, True)`, after which brokers behave as if the topic had too few in-sync
    replicas, until it is called with False.

    `too_few_in_sync` affects the brokers that this test starts. A single broker by itself never has too few in-sync
    replicas, because it requires no more replicas than exist.
    """
    directory = tmp_path / "too-few-in-sync"
    directory.mkdir()
    sabotage(TOO_FEW_REPLICAS.format(directory=str(directory)))

    def set_state(topic: str, are_too_few: bool) -> None:
        if are_too_few:
            (directory / topic).touch()
        else:
            (directory / topic).unlink()

    return set_state
