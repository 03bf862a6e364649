"""Fixtures of the tests of whole clusters: broker processes on a real ZooKeeper.

The helpers of `tests/integration` serve here, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from broker_cluster import BrokerCluster


@pytest.fixture(scope="module")
def three_brokers(new_cluster_root: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    """Three brokers for all tests of a module, with one replica of everything: each test uses topics of its own."""
    cluster = BrokerCluster(tmp_path_factory.mktemp("cluster"), new_cluster_root, size=3)
    with cluster:
        yield cluster
    cluster.check_logs()


@pytest.fixture(scope="module")
def new_cluster_root(request: pytest.FixtureRequest) -> str:
    """A chroot in ZooKeeper for one cluster."""
    chroot: str = request.getfixturevalue("chroots")()
    return chroot
