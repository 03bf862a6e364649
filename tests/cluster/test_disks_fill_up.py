"""Disks that have no room left, or fail, while it is a follower's, a leader's, the controller's; and are well again."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from final_state import settle_and_check
from recording_clients import PRODUCERS, Writer
from replicated_cluster import ReplicatedCluster
from tests.support.history.events import Place
from tests.support.history.recorder import History

FAULTS = """
import errno, os
from oncelog_broker.runtime.disk import RealDisk, RealFile

append, replace_file = RealFile.append, RealDisk.replace_file

def check(path):
    directory = os.path.dirname(path)
    while len(directory) > 1:
        for suffix, error in ((".full", errno.ENOSPC), (".broken", errno.EIO)):
            if os.path.exists(directory + suffix):
                raise OSError(error, os.strerror(error), path)
        directory = os.path.dirname(directory)

def checked_append(self, *buffers):
    check(self.path)
    return append(self, *buffers)

def checked_replace_file(self, path, *arguments, **options):
    check(path)
    return replace_file(self, path, *arguments, **options)

RealFile.append, RealDisk.replace_file = checked_append, checked_replace_file
"""
"""A broker's disk is full as long as there is a file named like its data directory with ".full" behind it, and broken
while there is one with ".broken"."""


@pytest.fixture(scope="module")
def filling(chroots: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedCluster]:
    directory = tmp_path_factory.mktemp("filling")
    (directory / "sitecustomize.py").write_text(FAULTS)
    with pytest.MonkeyPatch.context() as environment:
        path = [str(directory), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
        with ReplicatedCluster(directory, chroots(), {"replica.lag.time.max.ms": "2000"}) as cluster:
            yield cluster
    for broker in cluster.brokers.values():
        log = broker.log.read_text()
        # Tasks of the background say as much.
        assert log.count("Traceback") == len(re.findall(r"\nOSError: \[Errno (28|5)\]", log)), log


@pytest.mark.parametrize("whose", ["follower", "leader"])
@pytest.mark.parametrize(("fault", "library"), [("full", "oncelog"), ("full", "librdkafka"), ("broken", "oncelog")])
def test_c21_a_disk_is_full_or_fails(
    filling: ReplicatedCluster, history: History, topic: str, library: str, fault: str, whose: str
) -> None:
    """Producers go on without that broker, which leads no more; it comes back without a restart."""
    cluster = filling
    cluster.mend()
    controller = cluster.controller()
    others = [node_id for node_id in (1, 2, 3) if node_id != controller]
    cluster.create_topic(topic, (controller, *others) if whose == "leader" else (*others, controller))
    marker = Path(f"{cluster.brokers[controller].data}.{fault}")
    with PRODUCERS[library](cluster.addresses, history, "anna") as producer:
        with Writer(producer, Place(topic)) as writer:
            writer.until_more(10)
            marker.touch()
            try:
                cluster.until(lambda: controller not in cluster.part(topic).isr, "it has left the ISR")
                cluster.until_led(topic, but_by=controller)
                writer.until_more(10)
            finally:
                marker.unlink()
            writer.until_more(10)
            cluster.until_whole(topic)
        assert producer.acknowledged == producer.sent
    if fault == "broken":
        assert "offline: could not append" in cluster.brokers[controller].log.read_text()
    settle_and_check(cluster, history, topic)
