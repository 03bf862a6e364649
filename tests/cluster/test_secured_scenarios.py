"""Plays scenarios of other modules with brokers that log in to each other, and to ZooKeeper over TLS.

`ONCELOG_TEST_SECURED=1` runs all scenarios in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from replicated_cluster import ReplicatedCluster
from secured_cluster import known
from test_leaders_die import test_c1_the_leader_is_killed_under_waiting_batches
from test_sessions_end import test_c27_sessions_are_ended_from_outside
from test_transactions_survive import test_c5_coordinator_state_survives_the_death_of_all_coordinators
from tests.support.zookeeper.fixtures import SecuredZooKeeper

__all__ = [
    "test_c1_the_leader_is_killed_under_waiting_batches",
    "test_c5_coordinator_state_survives_the_death_of_all_coordinators",
    "test_c27_sessions_are_ended_from_outside",
]


@pytest.fixture(scope="module")
def cluster_of_module(
    secured_chroots: Callable[[], SecuredZooKeeper], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReplicatedCluster]:
    with ReplicatedCluster(tmp_path_factory.mktemp("secured"), known(secured_chroots())) as cluster:
        yield cluster
    cluster.check_logs()
