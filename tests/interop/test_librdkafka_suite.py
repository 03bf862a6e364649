"""Runs librdkafka's own test suite with `group.protocol=consumer` against our brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import or_skip
from librdkafka_suite import BUILD_SECONDS, built, run
from replicated_cluster import ReplicatedCluster
from secured_broker import ADMIN, ADMIN_PASSWORD, SecuredBroker
from secured_cluster import known
from tests.support.zookeeper.fixtures import SecuredZooKeeper

RUN_SECONDS = 2400
LOGIN_SECONDS = 300
NOT_APPLICABLE = {
    "0082_fetch_max_bytes": "left out in quick mode",
    "0084_destroy_flags": "disabled by its authors",
    "0092_mixed_msgver": "needs the record format of Kafka 0.10, which Kafka 4 does not write either",
    "0097_ssl_verify": "needs certificates with private keys in Java's format",
    "0126_oauthbearer_oidc": "needs an identity provider",
    "0132_strategy_ordering": "about assignors of clients, which the consumer protocol does not have",
    "0135_sasl_credentials": "needs a login: the test below",
    "0142_reauthentication": "needs a login: the test below",
}
"""Tests that skip themselves -> why."""
NEED_RAPIDJSON = {"0053_stats", "0098_consumer_txn", "0101_fetch_from_follower", "0110_batch_size"}
"""Tests that skip themselves if the suite was built without rapidjson's headers (Debian: rapidjson-dev)."""
RACES = {
    "0118_commit_rebalance": "passes if the first of two consumers joins the group first; both subscribe at once",
    "0086_purge_remote": "expects the client to send a second request within 100 ms",
}
"""Tests that also fail on a correct broker, by chance -> why. They are repeated alone."""
REPEATS = 5
LOGIN_TESTS = {"0135_sasl_credentials", "0142_reauthentication"}


@pytest.fixture
def cluster(secured_chroots: Callable[[], SecuredZooKeeper], tmp_path: Path) -> Iterator[ReplicatedCluster]:
    """Three brokers in three racks, with the settings of librdkafka's own test clusters."""
    settings = {
        "authorizer.class.name": "StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:broker",
        "auto.create.topics.enable": "true",
        "num.partitions": "4",
        "min.insync.replicas": "1",
        "group.share.min.record.lock.duration.ms": "1000",
        "replica.selector.class": "RackAwareReplicaSelector",
        # No broker is killed here, and a busy machine must not cause elections.
        "zookeeper.session.timeout.ms": "18000",
    }
    cluster = ReplicatedCluster(tmp_path, known(secured_chroots()), settings)
    for node_id, broker in cluster.brokers.items():
        broker.settings["broker.rack"] = f"RACK{node_id}"
    with cluster:
        yield cluster
    cluster.check_logs()


@pytest.mark.soak
@pytest.mark.timeout(BUILD_SECONDS + RUN_SECONDS)
def test_librdkafka_passes_with_the_consumer_protocol(cluster: ReplicatedCluster, tmp_path: Path) -> None:
    suite = or_skip(built)
    report = run(suite, cluster.addresses, tmp_path, RUN_SECONDS)
    assert report.failed.keys() <= RACES.keys(), report.failed
    assert report.skipped.keys() - NEED_RAPIDJSON == NOT_APPLICABLE.keys(), report.skipped
    assert len(report.passed) > 80
    for name in report.failed:
        number = name.partition("_")[0]
        again = (run(suite, cluster.addresses, tmp_path, RUN_SECONDS, [number]) for _ in range(REPEATS))
        assert any(each.passed == {name} for each in again), RACES[name]


@pytest.mark.soak
@pytest.mark.timeout(BUILD_SECONDS + LOGIN_SECONDS)
def test_librdkafka_logs_in_again_before_its_session_ends(tmp_path: Path) -> None:
    suite = or_skip(built)
    login = {"security_protocol": "sasl_plaintext", "sasl_mechanism": "SCRAM-SHA-256"}
    names = {"sasl_username": ADMIN, "sasl_password": ADMIN_PASSWORD}
    with SecuredBroker(tmp_path, {"connections.max.reauth.ms": "5000"}) as broker:
        numbers = sorted(name.partition("_")[0] for name in LOGIN_TESTS)
        address = broker.address("SASL_PLAINTEXT")
        report = run(suite, address, tmp_path, LOGIN_SECONDS, numbers, **login, **names)
    assert (report.passed, report.failed, report.skipped) == (LOGIN_TESTS, {}, {})
