"""Tests that brokers detect a ZooKeeper that was restored from a backup while all brokers were down, so that its leader
epochs and producer ids are too old.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from final_state import settle_and_check
from kazoo.client import KazooClient
from recording_clients import PRODUCERS
from replicated_cluster import BROKERS, WAIT_SECONDS, ReplicatedCluster

from oncelog_broker.metadata import paths
from oncelog_broker.replication.roles import LOST_EPOCHS
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

TOPIC = "topic"
PLACES = [Place(TOPIC, 0), Place(TOPIC, 1)]
NODES = [*(paths.partition_state(*place) for place in PLACES), paths.LATEST_PRODUCER_ID_BLOCK]


@contextmanager
def connected(zookeeper: str) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper, timeout=60)
    client.start(WAIT_SECONDS)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def write(cluster: ReplicatedCluster, history: History, name: str) -> None:
    """Write a record to each partition, with a new producer id."""
    producer = PRODUCERS["oncelog"](cluster.addresses, history, name)
    for place in PLACES:
        producer.send(place)
    producer.flush()
    producer.close()


def test_s75_s77_e43_e44_no_replica_and_no_producer_takes_an_older_state_for_its_own(
    zookeeper: str, tmp_path: Path, history: History
) -> None:
    with ReplicatedCluster(tmp_path, zookeeper) as cluster:
        cluster.create_topic(TOPIC, (1, 2, 3), (2, 3, 1))
        write(cluster, history, "before")
        with connected(zookeeper) as store:
            backup = {path: store.get(path)[0] for path in NODES}
        for victim in (1, 2):
            cluster.kill(victim)
            for place in PLACES:
                cluster.until_led(*place, but_by=victim)
            write(cluster, history, f"without {victim}")
            cluster.start(victim)
            cluster.until_whole(TOPIC)
        for broker in cluster.brokers.values():
            broker.kill()
        with connected(zookeeper) as store:
            for path, data in backup.items():
                store.set(path, data)
        cluster.start(*BROKERS)
        cluster.until_registered(*BROKERS)
        for number in range(3):
            write(cluster, history, f"after {number}")
        settle_and_check(cluster, history, TOPIC)
        for place in PLACES:
            assert cluster.part(*place).epoch > LOST_EPOCHS
        logged = "".join(broker.log.read_text() for broker in cluster.brokers.values())
        assert "ids continue above the ids in the logs" in logged
        # One of two replicas logs this: the elected replica, or a follower with a newer log that fetched before the
        # elected replica knew its role.
        assert "requests a higher epoch: the metadata store is older than the logs" in logged
        cluster.check_logs()
