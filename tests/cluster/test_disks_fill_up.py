"""Disks that have no room left, while it is a follower's, a leader's, the controller's; and have it again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from final_state import settle_and_check
from recording_clients import PRODUCERS, Writer
from replicated_cluster import ReplicatedCluster
from tests.support.history.events import Place
from tests.support.history.recorder import History

NO_ROOM = """
import errno, os
from oncelog_broker.runtime.disk import RealDisk, RealFile

append, replace_file = RealFile.append, RealDisk.replace_file

def check(path):
    directory = os.path.dirname(path)
    while len(directory) > 1:
        if os.path.exists(directory + ".full"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        directory = os.path.dirname(directory)

def append_where_there_is_room(self, *buffers):
    check(self.path)
    return append(self, *buffers)

def replace_where_there_is_room(self, path, *arguments, **options):
    check(path)
    return replace_file(self, path, *arguments, **options)

RealFile.append, RealDisk.replace_file = append_where_there_is_room, replace_where_there_is_room
"""
"""A broker's disk is full as long as there is a file named like its data directory with ".full" behind it."""


@pytest.fixture(scope="module")
def filling(chroots: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedCluster]:
    directory = tmp_path_factory.mktemp("filling")
    (directory / "sitecustomize.py").write_text(NO_ROOM)
    with pytest.MonkeyPatch.context() as environment:
        path = [str(directory), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
        with ReplicatedCluster(directory, chroots(), {"replica.lag.time.max.ms": "2000"}) as cluster:
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
    full = Path(f"{cluster.brokers[controller].data}.full")
    with PRODUCERS[library](cluster.addresses, history, "anna") as producer:
        with Writer(producer, Place(topic)) as writer:
            writer.until_more(10)
            full.touch()
            try:
                if whose == "follower":
                    cluster.until(lambda: controller not in cluster.part(topic).isr, "it has left the ISR")
                    writer.until_more(10)
                else:
                    cluster.until(lambda: "no space" in log_of(cluster, controller), "the leader has met its full disk")
            finally:
                full.unlink()
            writer.until_more(10)
            cluster.until_whole(topic)
        assert producer.acknowledged == producer.sent
    settle_and_check(cluster, history, topic)


def log_of(cluster: ReplicatedCluster, node_id: int) -> str:
    return cluster.brokers[node_id].log.read_text().lower()
