"""An internal topic of one broker, and a runtime of toy state machines on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.support.counters import Counters
from tests.support.internal_topic import TOPIC, InternalTopic

from oncelog_broker.coordinator.runtime import CoordinatorRuntime


@pytest.fixture
def internal_topic(tmp_path: Path) -> Iterator[InternalTopic]:
    topic = InternalTopic(tmp_path)
    yield topic
    topic.close()


@pytest.fixture
def internal_topics(tmp_path: Path) -> Iterator[Iterator[InternalTopic]]:
    """New internal topics, for a test that measures the same work several times."""
    with ExitStack() as opened:

        def topics() -> Iterator[InternalTopic]:
            for number in count():
                topic = InternalTopic(tmp_path / str(number))
                opened.callback(topic.close)
                yield topic

        yield topics()


@pytest.fixture
def runtime(internal_topic: InternalTopic) -> CoordinatorRuntime[Counters]:
    """Runs toy state machines on the partitions of `internal_topic`; the fixture replaces the rest of a broker."""
    topic: Any = internal_topic
    return CoordinatorRuntime(TOPIC, Counters, topic, topic.host)
