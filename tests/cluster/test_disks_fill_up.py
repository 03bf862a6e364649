"""Disks that have no room left, while it is a follower's, a leader's, the controller's; and have it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from failing_machines import fill_disk, machines_that_fail, make_room
from final_state import settle_and_check
from recording_clients import PRODUCERS, Writer
from replicated_cluster import ReplicatedCluster
from tests.support.history.events import Place
from tests.support.history.recorder import History


@pytest.fixture(scope="module")
def filling(chroots: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedCluster]:
    directory = tmp_path_factory.mktemp("filling")
    with (
        machines_that_fail(directory),
        ReplicatedCluster(directory, chroots(), {"replica.lag.time.max.ms": "2000"}) as cluster,
    ):
        yield cluster
    for broker in cluster.brokers.values():
        log = broker.log.read_text()
        assert log.count("Traceback") == log.count("\nOSError: [Errno 28]"), log  # tasks of the background say as much


@pytest.mark.parametrize("whose", ["follower", "leader"])
@pytest.mark.parametrize("library", PRODUCERS)
def test_c21_a_disk_is_full(filling: ReplicatedCluster, history: History, topic: str, library: str, whose: str) -> None:
    """Producers wait until there is room, or the partition goes on without that broker; it needs no restart."""
    cluster = filling
    cluster.mend()
    controller = cluster.controller()
    others = [node_id for node_id in (1, 2, 3) if node_id != controller]
    replicas = (controller, *others) if whose == "leader" else (*others, controller)
    cluster.create_topic(topic, replicas)
    data = cluster.brokers[controller].data
    with PRODUCERS[library](cluster.addresses, history, "anna") as producer:
        with Writer(producer, Place(topic)) as writer:
            writer.until_more(10)
            fill_disk(data)
            try:
                if whose == "follower":
                    cluster.until(lambda: controller not in cluster.part(topic).isr, "it has left the ISR")
                    writer.until_more(10)
                else:
                    cluster.until(lambda: "no space" in log_of(cluster, controller), "the leader has met its full disk")
            finally:
                make_room(data)
            writer.until_more(10)
            cluster.until_whole(topic)
        assert producer.acknowledged == producer.sent
    settle_and_check(cluster, history, topic)


def log_of(cluster: ReplicatedCluster, node_id: int) -> str:
    return cluster.brokers[node_id].log.read_text().lower()
