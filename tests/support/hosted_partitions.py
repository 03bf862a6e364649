"""Cluster images of topics, and a disk that records and can block the threads that wait for it, for tests of a broker's
partitions.
"""

from __future__ import annotations

import threading
from pathlib import Path

from oncelog_broker.metadata.model.image import ClusterImage, PartitionState, Topic
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.disk import RealDisk

EMPTY = ClusterImage("")


class WatchedDisk(RealDisk):
    """A disk that records which threads wait for it, and that blocks threads until the test releases them."""

    def __init__(self) -> None:
        self.threads: set[threading.Thread] = set()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.is_waiting = threading.Event()
        self.refuses_renames = False
        self.events: list[str] = []

    def wait(self) -> None:
        self.threads.add(threading.current_thread())
        if not self.may_go_on.is_set():
            self.is_waiting.set()
        self.may_go_on.wait(10)

    def sync_directory(self, path: str) -> None:
        self.wait()
        super().sync_directory(path)

    def make_directories(self, path: str) -> bool:
        self.wait()
        self.events.append(f"made {Path(path).name}")
        return super().make_directories(path)

    def rename(self, source: str, target: str) -> None:
        if target.endswith("-delete"):
            if self.refuses_renames:
                raise PermissionError(13, "Permission denied")
            self.events.append(f"deleted {Path(source).name}")
        super().rename(source, target)


def topic(name: str, number: int, partitions: int = 1, *, epoch: int = 0) -> Topic:
    return Topic(
        name,
        bytes([number]) * 16,
        {index: PartitionState((1,), (1,), leader=1, leader_epoch=epoch) for index in range(partitions)},
    )


def replicated(leader: int, epoch: int, isr: tuple[int, ...] = (1, 2)) -> Topic:
    return Topic("orders", bytes([1]) * 16, {0: PartitionState((1, 2), isr, leader, epoch, epoch)})


async def show(replicas: Replicas, *states: Topic) -> Partition:
    """Apply an image for each of these topic states, in this order; return the topic's only partition."""
    image = EMPTY
    for state in states:
        replicas.on_image(image, newer := EMPTY.with_topic(state))
        await replicas.until_opened()
        image = newer
    (partition,) = replicas.partitions()
    return partition


class NobodyFetches:
    """Replaces a broker's fetchers, so that followed partitions never change."""

    def follow(self, partition: Partition) -> None: ...

    def forget(self, partition: Partition) -> None: ...

    def restart_log(self, partition: Partition) -> None: ...

    def hears(self, partition: Partition) -> bool:
        return False


def nobody_fetches(on_truncated: object) -> NobodyFetches:
    """Create a `NobodyFetches`; `Replicas` accepts this function as an argument."""
    return NobodyFetches()
