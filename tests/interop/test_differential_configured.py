"""Compares the broker with Apache Kafka when both allow two-phase commit (KIP-939) and have two log directories."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_kafka import ApacheKafka
from broker_process import BrokerProcess
from conftest import or_skip
from tests.interop.differential.configured import KAFKA_SETTINGS, SETTINGS
from tests.interop.differential.coverage import ONLY_WITH_SETTINGS
from tests.interop.differential.known import KNOWN
from tests.interop.differential.register import stale, unexplained
from tests.interop.differential.scenario import Scenario, play
from tests.interop.differential.scenarios import CONFIGURED
from tests.interop.differential.side import NODE_ID, RELEASE

from oncelog_protocol.api import ApiKey

OURS = {
    "node.id": str(NODE_ID),
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


def directories_of(data: Path) -> str:
    """Return the value of log.dirs: two directories, the first of which is `data`."""
    return f"{data},{data.parent / 'second'}"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    data = tmp_path_factory.mktemp("apache-configured") / "data"
    settings = {**KAFKA_SETTINGS, "log.dirs": directories_of(data)}
    with or_skip(lambda: ApacheKafka(RELEASE, data, settings)) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("configured") / "data"
    directories = directories_of(data)
    broker = BrokerProcess(data, {**SETTINGS, **OURS, "log.dirs": directories})
    broker.data = Path(directories)  # `data` is an option of the command, whose value must be that of log.dirs
    with broker:
        yield broker
        assert "Traceback" not in broker.log.read_text()


@pytest.fixture(scope="module")
def asked() -> set[tuple[ApiKey, int]]:
    """The API keys and versions of the requests that have been sent so far."""
    return set()


@pytest.mark.parametrize("scenario", CONFIGURED, ids=lambda scenario: scenario.name)
def test_both_brokers_answer_alike(
    scenario: Scenario, kafka: ApacheKafka, ours: BrokerProcess, asked: set[tuple[ApiKey, int]]
) -> None:
    outcome = play(scenario, kafka.port, ours.port, uuid.uuid4().hex[:6])
    asked |= outcome.asked
    new = [f"a difference that no row of docs/differences.md explains: {one}" for one in unexplained(outcome, KNOWN)]
    gone = [f"a known difference that is gone: {entry}" for entry in stale(scenario.name, outcome, KNOWN)]
    assert not new + gone, "\n".join(new + gone)
    assert outcome.answers, "nothing was compared"


def test_the_versions_that_need_these_settings_were_asked_for(
    kafka: ApacheKafka, asked: set[tuple[ApiKey, int]]
) -> None:
    if not asked:
        pytest.skip("only after scenarios")
    assert asked >= ONLY_WITH_SETTINGS
