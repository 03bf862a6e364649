"""Tests what a broker does when its ZooKeeper session ends, or may have ended: because somebody else ends the session,
or because the ensemble is down.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from broker_sessions import broker_epoch, end_session
from final_state import settle_and_check
from recording_clients import PRODUCERS, Writer
from replicated_cluster import SESSION_MS, ReplicatedCluster
from tests.support.zookeeper.fixtures import ZooKeeperFactory

from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

LIBRARIES = pytest.mark.parametrize("library", PRODUCERS)


@LIBRARIES
@pytest.mark.parametrize("times", [2, pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_c27_sessions_are_ended_from_outside(
    cluster: ReplicatedCluster, history: History, topic: str, library: str, times: int
) -> None:
    """A broker whose session ends repeatedly registers again each time; although its absences are short, the broker
    loses its leaderships.
    """
    cluster.create_topic(topic, (1, 2, 3))
    with PRODUCERS[library](cluster.addresses, history, "anna") as producer:
        with Writer(producer, Place(topic)) as writer:
            for _ in range(times):
                writer.until_more(5)
                leader = cluster.until_led(topic).leader
                before = broker_epoch(cluster, leader)
                end_session(cluster, leader)
                cluster.until(
                    lambda: broker_epoch(cluster, leader) > before,  # noqa: B023
                    f"broker {leader} registers anew",
                )
                writer.until_more(5)
        assert producer.acknowledged == producer.sent
    settle_and_check(cluster, history, topic)


@LIBRARIES
def test_c9_the_cluster_survives_an_outage_of_the_ensemble(
    zookeeper_factory: ZooKeeperFactory, tmp_path: Path, history: History, library: str
) -> None:
    """If the ensemble is down for half of a session timeout, brokers may stop serving, and serve again in the same
    epochs. If the ensemble is down for longer than a session timeout, all sessions end, and all brokers register again
    and continue.
    """
    ensemble = zookeeper_factory()
    with ReplicatedCluster(tmp_path, ensemble.connect_string) as cluster:
        cluster.create_topic("topic", (1, 2, 3))
        place = Place("topic")
        with PRODUCERS[library](cluster.addresses, history, "anna") as producer:
            with Writer(producer, place) as writer:
                for sessions in (0.5, 3.0):
                    writer.until_more(10)
                    ensemble.server(1).pause()
                    time.sleep(sessions * SESSION_MS / 1000)
                    ensemble.server(1).resume()
                    began = time.monotonic()
                    cluster.until_led("topic")
                    writer.until_more(10)
                    print(f"served again {time.monotonic() - began:.1f} s after ZooKeeper was back from {sessions} T")
            assert producer.acknowledged == producer.sent
        settle_and_check(cluster, history, "topic")
        cluster.check_logs()


@pytest.mark.soak
@LIBRARIES
def test_c20_all_brokers_are_killed_while_the_ensemble_stands_still(
    zookeeper_factory: ZooKeeperFactory, tmp_path: Path, history: History, library: str
) -> None:
    """The sessions are still open when the ensemble continues: each broker ends the session of its predecessor and
    registers.
    """
    ensemble = zookeeper_factory()
    settings = {"zookeeper.connection.timeout.ms": "60000"}
    with ReplicatedCluster(tmp_path, ensemble.connect_string, settings) as cluster:
        cluster.create_topic("topic", (1, 2, 3))
        with PRODUCERS[library](cluster.addresses, history, "anna") as producer:
            with Writer(producer, Place("topic")) as writer:
                writer.until_more(20)
                ensemble.server(1).pause()
                cluster.kill(1, 2, 3)
                with ThreadPoolExecutor(1) as pool:
                    started = pool.submit(cluster.start, 3, 1, 2)
                    ensemble.server(1).resume()
                    started.result(100)
                writer.until_more(20)
            assert producer.acknowledged == producer.sent
        settle_and_check(cluster, history, "topic")
