"""Tests disks of a follower, a leader or the controller that are full or fail, until they work again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from failing_machines import break_disk, fill_disk, machines_that_fail, make_room, mend_disk
from final_state import settle_and_check
from recording_clients import PRODUCERS, Writer
from replicated_cluster import ReplicatedCluster

from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History


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
        # Background tasks, too, log a disk error with a traceback.
        assert log.count("Traceback") == len(re.findall(r"\nOSError: \[Errno (28|5)\]", log)), log


@pytest.mark.crossed("fault", "whose")
@pytest.mark.parametrize("whose", ["follower", "leader"])
@pytest.mark.parametrize(("fault", "library"), [("full", "oncelog"), ("full", "librdkafka"), ("broken", "oncelog")])
def test_c21_a_disk_is_full_or_fails(
    filling: ReplicatedCluster, history: History, topic: str, library: str, fault: str, whose: str
) -> None:
    """Producers continue without the broker with the full disk, which gives up its leadership and returns without a
    restart.
    """
    cluster = filling
    cluster.mend()
    controller = cluster.controller()
    others = [node_id for node_id in (1, 2, 3) if node_id != controller]
    replicas = (controller, *others) if whose == "leader" else (*others, controller)
    cluster.create_topic(topic, replicas)
    epoch = cluster.part(topic).epoch
    data = cluster.brokers[controller].data
    hurt, heal = (fill_disk, make_room) if fault == "full" else (break_disk, mend_disk)
    with PRODUCERS[library](cluster.addresses, history, "anna") as producer:
        with Writer(producer, Place(topic)) as writer:
            writer.until_more(10)
            hurt(data)
            try:
                cluster.until(lambda: controller not in cluster.part(topic).isr, "it has left the ISR")
                cluster.until_led(topic, but_by=controller)
                writer.until_more(10)
            finally:
                heal(data)
            writer.until_more(10)
            cluster.until_whole(topic)
        assert producer.acknowledged == producer.sent
    if fault == "broken":
        assert "offline: could not append" in cluster.brokers[controller].log.read_text()
        assert cluster.part(topic).epoch > epoch, "in which a follower's log has not begun again either"
    settle_and_check(cluster, history, topic)
