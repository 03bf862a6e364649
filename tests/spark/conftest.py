"""Fixtures of the tests with a live Spark: all of them share one JVM and one session, because a start takes longer than
most tests. These tests run after all others, one at a time.

If PySpark (the extra `pipeline`) is not installed, no test is collected.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / each) for each in ("integration", "cluster", "interop"))]

import integration_folders  # noqa: E402, F401  where helpers of tests/integration are
from broker_process import BrokerFactory, BrokerProcess  # noqa: E402

collect_ignore_glob = [] if find_spec("pyspark") else ["test_*.py"]
LOG_CHARACTERS = 6000
WARNINGS = ("ResourceWarning", "DeprecationWarning", "FutureWarning", "pytest.PytestUnraisableExceptionWarning")
"""Warnings that PySpark itself causes: it leaves sockets to the garbage collector, and uses deprecated features of
pandas.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            for warning in WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """A failed test shows the log lines of its brokers."""
    report = yield
    if report.failed:
        for broker in BrokerProcess.started:
            if broker.log.exists() and (logged := broker.log.read_text()):
                report.sections.append((f"log of the broker with {broker.data}", logged[-LOG_CHARACTERS:]))
    return report


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """The session. A Spark session that runs two tasks at a time, and tries each task up to three times."""
    from spark_session import started

    from oncelog_pipeline.spark.environment import worker_python

    with started(python=worker_python()) as session:
        yield session


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests, each of which uses its own topics."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process
    assert "Traceback" not in process.log.read_text()


@pytest.fixture
def address(broker: BrokerProcess) -> str:
    return broker.address


@pytest.fixture
def broker_factory(tmp_path: Path) -> Iterator[BrokerFactory]:
    """Yield `broker_factory(settings)`, which creates brokers for one test."""
    started: list[BrokerProcess] = []

    def make(settings: dict[str, str] | None = None, data: Path | None = None) -> BrokerProcess:
        started.append(BrokerProcess(data or tmp_path / f"data{len(started)}", settings))
        return started[-1]

    yield make
    for process in started:
        if process.is_running:
            process.stop()


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
