"""Runs the test suite of franz-go's client kgo against our brokers: groups of all protocols (classic, KIP-848, share
groups), transactions, SCRAM and OAUTHBEARER; on one broker, and on three that are killed one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import or_skip
from kgo_suite import BUILD_SECONDS, PATIENT, KgoRun, Outcome, built
from maven import FETCH_SECONDS
from replicated_cluster import BROKERS, ReplicatedCluster
from secured_broker import ADMIN, ADMIN_PASSWORD, SecuredBroker

VARIANTS = ["published", "server_side"]
RUN_SECONDS = 400
TIMEOUT = BUILD_SECONDS + FETCH_SECONDS + RUN_SECONDS
RECORDS = 20_000
"""The number of records in each chain of consumers; the suite's default is 500,000."""
NOT_APPLICABLE = frozenset({"TestIssueProduceBrokerTooOldFailsRecords"})
"""Tests that skip themselves, because they need a broker without Produce v2, which ours serves."""
GROUP_TESTS = frozenset(
    {
        *(f"TestGroupETL/{name}" for name in ("range/848", "sticky/848", "sticky/848/static")),
        *(f"TestTxnEtl/{name}" for name in ("range/848", "sticky/848", "sticky/848/static")),
        "Test848RegexBrokerResolves",
        "TestConsumeRegexShareSkipsInternal",
        "TestShareGroup",
        "TestShareGroupAckOnClose",
        "TestShareGroupETL",
        "TestShareGroupOffsetsAdmin",
    }
)
"""Tests of groups that would skip themselves if the broker lacked what they are about."""
LOGIN_TESTS = frozenset({"TestSCRAMAuth", "TestSCRAMAuthBadCredentials", "TestOAuthAuth"})
"""Tests that skip themselves without a listener with SASL."""
LIMIT = {"timeout": f"{RUN_SECONDS}s"}
CHAINS = "^(TestGroupETL|TestTxnEtl|TestShareGroupETL)$"
SHARE_CHAIN = "^TestShareGroupETL$"
CHAIN_RECORDS = 20_000
SHARE_CHAIN_RECORDS = 200_000
"""So many that brokers can be killed several times meanwhile."""
BETWEEN_KILLS_SECONDS = 3.0
FEWEST_KILLS = 3


@pytest.fixture
def cluster(chroots: object, tmp_path: Path) -> Iterator[ReplicatedCluster]:
    settings = {
        "auto.create.topics.enable": "true",
        # A broker that dies must not cost a member its session, because records may then be repeated.
        "group.consumer.session.timeout.ms": "45000",
    }
    with ReplicatedCluster(tmp_path, chroots(), settings) as started:  # type: ignore[operator]
        yield started
    started.check_logs()


@pytest.mark.parametrize("server_side", [False, pytest.param(True, marks=pytest.mark.soak)], ids=VARIANTS)
@pytest.mark.timeout(TIMEOUT)
def test_kgo_passes_on_one_broker(server_side: bool, tmp_path: Path) -> None:
    program = or_skip(lambda: built(server_side))
    tokens = {"sasl.oauthbearer.allow.unsecured.tokens": "true", "sasl.oauthbearer.expected.audience": ""}
    with SecuredBroker(tmp_path, tokens) as broker:
        logins = {
            "KGO_TEST_SCRAM": f"{ADMIN}:{ADMIN_PASSWORD}",
            "KGO_TEST_SCRAM_SEEDS": broker.address("SASL_PLAINTEXT"),
            "KGO_TEST_OAUTH_SEEDS": broker.address("SASL_PLAINTEXT"),
        }
        settings = {"KGO_TEST_RF": "1", "KGO_TEST_RECORDS": str(RECORDS), **logins}
        with KgoRun(program, broker.address("PLAINTEXT"), LIMIT, settings, tmp_path / "kgo.log") as run:
            outcome = ended(run)
    assert outcome.skipped == NOT_APPLICABLE
    assert outcome.passed >= GROUP_TESTS | LOGIN_TESTS
    assert "Traceback" not in broker.logged


@pytest.mark.parametrize("server_side", [pytest.param(False, marks=pytest.mark.soak), True], ids=VARIANTS)
@pytest.mark.timeout(TIMEOUT)
def test_kgo_passes_on_three_brokers(server_side: bool, cluster: ReplicatedCluster, tmp_path: Path) -> None:
    program = or_skip(lambda: built(server_side))
    settings = {"KGO_TEST_RECORDS": str(RECORDS)}
    with KgoRun(program, cluster.addresses, LIMIT, settings, tmp_path / "kgo.log") as run:
        outcome = ended(run)
    assert outcome.skipped == NOT_APPLICABLE | LOGIN_TESTS
    assert outcome.passed >= GROUP_TESTS


@pytest.mark.soak
@pytest.mark.timeout(TIMEOUT)
def test_chains_of_groups_lose_and_repeat_nothing_while_connections_die(
    cluster: ReplicatedCluster, tmp_path: Path
) -> None:
    """Every connection ends after half a second to one and a half."""
    program = or_skip(lambda: built(server_side=False))
    settings = {"KGO_TEST_RECORDS": str(CHAIN_RECORDS), "KGO_TEST_CHAOS": "1"}
    with KgoRun(program, cluster.addresses, {**LIMIT, "run": CHAINS}, settings, tmp_path / "kgo.log") as run:
        ended(run)


@pytest.mark.soak
@pytest.mark.timeout(TIMEOUT)
def test_a_chain_of_share_groups_loses_nothing_while_brokers_are_killed(
    cluster: ReplicatedCluster, tmp_path: Path
) -> None:
    program = or_skip(lambda: built(server_side=False))
    arguments = {**LIMIT, "run": SHARE_CHAIN}
    settings = {"KGO_TEST_RECORDS": str(SHARE_CHAIN_RECORDS), PATIENT: "1"}
    kills = 0
    with KgoRun(program, cluster.addresses, arguments, settings, tmp_path / "kgo.log") as run:
        while not run.wait(BETWEEN_KILLS_SECONDS):
            victim = BROKERS[kills % len(BROKERS)]
            cluster.kill(victim)
            kills += 1
            run.wait(BETWEEN_KILLS_SECONDS)
            cluster.start(victim)
            cluster.until_whole(*cluster.topics())
        ended(run)
    assert kills >= FEWEST_KILLS


def ended(run: KgoRun) -> Outcome:
    """Wait until the suite has ended, and check that no test has failed."""
    assert run.wait(RUN_SECONDS + 10)
    outcome = run.outcome()
    assert (outcome.code, outcome.failed) == (0, frozenset()), run.failures()
    return outcome
