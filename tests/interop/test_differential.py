"""Compares oncelog's broker with Apache Kafka: both get the same requests, and their responses may differ only as
docs/differences.md says.

A scenario fails if a difference has no row in docs/differences.md, or if a registered difference does not appear.
Longer walks are possible with DIFFERENTIAL_SEEDS=100 (of each kind) and DIFFERENTIAL_STEPS=70, and other walks with
DIFFERENTIAL_FIRST_SEED=1000.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from apache_kafka import ApacheKafka
from broker_process import BrokerProcess
from tests.interop.differential.coverage import missing_versions
from tests.interop.differential.known import KNOWN, OBLIGED, OBLIGING, OPTIONAL
from tests.interop.differential.register import shares_an_area, stale, unexplained
from tests.interop.differential.scenario import Outcome, Scenario, play
from tests.interop.differential.scenarios import SCENARIOS
from tests.interop.differential.side import NODE_ID, RELEASE

SETTINGS = {
    "node.id": str(NODE_ID),
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""Settings of oncelog's broker on which responses depend, with the values that Kafka's broker has."""

of_one_release = pytest.mark.parametrize("apache_kafka", [RELEASE], indirect=True)


@pytest.fixture(scope="module")
def our_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("differential") / "data", SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def obliging_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """oncelog's broker, with all settings that make it respond as Kafka does."""
    with BrokerProcess(tmp_path_factory.mktemp("obliging") / "data", SETTINGS | OBLIGING) as broker:
        yield broker


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """The outcomes of the scenarios that have run so far, by name of the scenario."""
    return {}


@pytest.fixture(scope="module")
def run_name() -> str:
    return uuid.uuid4().hex[:6]


@of_one_release
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_both_brokers_answer_alike(
    scenario: Scenario,
    apache_kafka: ApacheKafka,
    our_broker: BrokerProcess,
    outcomes: dict[str, Outcome],
    run_name: str,
) -> None:
    outcome = play(scenario, apache_kafka.port, our_broker.port, run_name)
    outcomes[scenario.name] = outcome
    new = [f"a difference that no row of docs/differences.md explains: {one}" for one in unexplained(outcome, KNOWN)]
    gone = [f"a known difference that is gone: {entry}" for entry in stale(scenario.name, outcome, KNOWN)]
    assert not new + gone, "\n".join(new + gone)
    assert outcome.answers, "nothing was compared"


@of_one_release
@pytest.mark.parametrize(
    "scenario", [one for one in SCENARIOS if shares_an_area(one.name, OPTIONAL)], ids=lambda scenario: scenario.name
)
def test_settings_take_differences_away(
    scenario: Scenario, apache_kafka: ApacheKafka, obliging_broker: BrokerProcess, run_name: str
) -> None:
    outcome = play(scenario, apache_kafka.port, obliging_broker.port, f"{run_name}-obliging")
    staying = tuple(entry for entry in KNOWN if entry not in OPTIONAL)
    there = [f"a difference that stays: {one}" for one in unexplained(outcome, staying + OBLIGED)]
    gone = [f"a known difference that is gone: {entry}" for entry in stale(scenario.name, outcome, OBLIGED)]
    assert not there + gone, "\n".join(there + gone)


# The following two tests evaluate the outcomes of all scenarios, so they must run after the scenarios. To that end, the
# two tests use the fixture of Apache Kafka, because pytest groups tests that share such a fixture.


@of_one_release
def test_our_brokers_logged_no_unexpected_error(
    apache_kafka: ApacheKafka, our_broker: BrokerProcess, obliging_broker: BrokerProcess, outcomes: dict[str, Outcome]
) -> None:
    if not outcomes:
        pytest.skip("only after scenarios")
    for broker in (our_broker, obliging_broker):
        assert "Traceback" not in broker.log.read_text()


@of_one_release
def test_every_version_that_both_serve_was_asked_for(apache_kafka: ApacheKafka, outcomes: dict[str, Outcome]) -> None:
    if len(outcomes) < len(SCENARIOS):
        pytest.skip("only when all scenarios are played")
    asked = {one for outcome in outcomes.values() for one in outcome.asked}
    assert missing_versions(asked) == []
