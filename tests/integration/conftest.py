"""Fixtures of the tests that need a live broker process."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from broker_process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of a module: each test uses topics of its own."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", {"log.segment.bytes": "1048576"})
    with process:
        yield process
    assert "Traceback" not in process.log.read_text()


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def broker_factory(tmp_path: Path) -> Iterator[object]:
    """Brokers of a test's own: `broker_factory(settings)`; they are stopped when the test ends."""
    started: list[BrokerProcess] = []

    def make(settings: dict[str, str] | None = None, data: Path | None = None) -> BrokerProcess:
        process = BrokerProcess(data or tmp_path / f"data{len(started)}", settings)
        started.append(process)
        return process

    yield make
    for process in started:
        if process.is_running:
            process.stop()
