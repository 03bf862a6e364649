"""If `ONCELOG_TEST_BROKERS=3` is set, the tests of foreign clients use three brokers instead of one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from replicated_cluster import BROKERS, ReplicatedCluster

SETTINGS = {
    "zookeeper.session.timeout.ms": "18000",  # no broker is killed here, and a busy machine must not cause elections
    "auto.create.topics.enable": "true",
    "log.segment.bytes": "1048576",
    "group.min.session.timeout.ms": "300",
}


@pytest.fixture(scope="session")
def shared_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReplicatedCluster]:
    """Return one cluster for all tests of a run; each test uses its own topics."""
    chroot = request.getfixturevalue("chroots")()
    with ReplicatedCluster(tmp_path_factory.mktemp("cluster"), chroot, SETTINGS) as cluster:
        yield cluster
    cluster.check_logs()


def is_asked_for(brokers: int) -> bool:
    """Return whether the tests run with this many brokers. The only possible numbers are one broker, and the number of
    brokers of this cluster.
    """
    assert brokers in (1, len(BROKERS)), f"ONCELOG_TEST_BROKERS is 1 or {len(BROKERS)}, not {brokers}"
    return brokers > 1
