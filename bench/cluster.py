"""Measures three brokers with ZooKeeper on one machine: the cost of acks=all, and the time of a failover.

All seconds are wall-clock seconds. Brokers, ZooKeeper and the client share the machine's cores and its disk, so three
replicas on three machines would give other numbers. Failover is measured at a client: from kill -9 of a leader to the
next record that is acknowledged with acks=all. During the session timeout, which this time includes, no broker may take
over.

For the measurement with many partitions, the brokers' data are in memory. It creates 3,000 directories and 6,000 small
files, and on a disk the time for each of them would depend on earlier deletions in the file system. For example, ext4
without a journal skips every inode that was freed in the last minutes: after a measurement like this one a log costs 1
ms of processor time, not 0.05.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import broker_cost as cost
from meter import percentile
from raw import RawClient
from replicated_cluster import SESSION_MS, ReplicatedCluster
from table import Add

from oncelog_broker.local_cluster.ensemble import Ensemble
from oncelog_broker.local_cluster.java import find_java
from oncelog_broker.local_cluster.zookeeper_jars import provide_jars

SESSION_SECONDS: Final = SESSION_MS / 1000
LOOK_SECONDS: Final = 0.02
"""Seconds between two checks of a condition."""
MANY_LOOK_SECONDS: Final = 0.2
"""Like LOOK_SECONDS, but for conditions that are expensive to check: each check takes 20 ms of the brokers and of the
client, which are part of the measured time.
"""
WAIT_SECONDS: Final = 120.0
MEMORY_DISK: Final = Path("/dev/shm")
MEMORY_DISK_ROOM: Final = 1 << 30
ROUNDS: Final = 3
"""The number of rounds of a measurement that kills a broker; the median counts."""


def measure(add: Add, scale: int) -> None:
    """Add all rows of this part; `scale` 10 means a tenth of the work."""
    with running() as cluster:
        acknowledged(add, cluster, 2000 // scale, 100 // scale)
        fail_over(add, cluster, 1 if scale > 1 else ROUNDS)
    with running(in_memory=True) as cluster:
        many_partitions(add, cluster, 1000 // scale)


@contextlib.contextmanager
def running(*, in_memory: bool = False) -> Iterator[ReplicatedCluster]:
    """Start a cluster. With `in_memory` the brokers' data are in memory if enough memory is free; ZooKeeper's data are
    always on the disk.
    """
    with (
        tempfile.TemporaryDirectory() as directory,
        tempfile.TemporaryDirectory(dir=MEMORY_DISK if in_memory and _has_room(MEMORY_DISK) else None) as data,
        Ensemble(Path(directory) / "zookeeper", find_java(), provide_jars(print)) as zookeeper,
        ReplicatedCluster(Path(data), zookeeper.connect_string) as cluster,
    ):
        yield cluster


def _has_room(disk: Path) -> bool:
    return disk.is_dir() and shutil.disk_usage(disk).free >= MEMORY_DISK_ROOM


def acknowledged(add: Add, cluster: ReplicatedCluster, count: int, megabytes: int) -> None:
    """Measure acks=all with three replicas, and acks=1 for comparison."""
    cluster.create_topic("replicated", (1, 2, 3))
    leader = cluster.until_led("replicated").leader
    with contextlib.closing(RawClient(cluster.brokers[leader].port)) as client:
        for acks, name in ((-1, "acks=all, 3 replicas"), (1, "acks=1, 3 replicas")):
            request = cost.produce_request("replicated", cost.batch(1000, 1000), acks)
            waits = []
            for number in range(count + count // 10):
                began = time.perf_counter()
                for frame in client.pipeline(request, 1, 1):
                    cost.check_produced(frame)
                if number >= count // 10:  # the first records are a warm-up
                    waits.append((time.perf_counter() - began) * 1000)
            add(f"{name}, 1 record of 1000 B, one in flight: p50", statistics.median(waits), "ms")
            add(f"{name}, 1 record of 1000 B, one in flight: p99", percentile(waits, 0.99), "ms")
            batch = cost.batch(64 * 1024, 1000)
            request = cost.produce_request("replicated", batch, acks)
            batches = max(8, megabytes * 1024 * 1024 // len(batch))
            began = time.perf_counter()
            for frame in client.pipeline(request, batches, 8):
                cost.check_produced(frame)
            rate = batches * len(batch) / 1e6 / (time.perf_counter() - began)
            add(f"{name}, 64 KB batches, 8 in flight", rate, "MB/s")


def fail_over(add: Add, cluster: ReplicatedCluster, rounds: int) -> None:
    cluster.create_topic("failing", (1, 2, 3))
    taken = []
    for _ in range(rounds):
        cluster.until_whole("failing")
        leader = cluster.until_led("failing").leader
        request = cost.produce_request("failing", cost.batch(1000, 1000))
        _produce_once(cluster, leader, request)
        began = time.perf_counter()
        cluster.kill(leader)
        waited_for(lambda: _is_produced_elsewhere(cluster, leader, request))  # noqa: B023
        taken.append(time.perf_counter() - began)
        cluster.start(leader)
    what = f"kill -9 of a leader to the next acks=all record, session of {SESSION_SECONDS:g} s"
    add(what, statistics.median(taken), "s", at_most=SESSION_SECONDS + 2)


def many_partitions(add: Add, cluster: ReplicatedCluster, count: int) -> None:
    replicas = [tuple((index + step) % 3 + 1 for step in range(3)) for index in range(count)]
    began, spent = time.perf_counter(), _cpu_seconds(cluster)
    cluster.create_topic("many", *replicas, waits=False)
    waited_for(lambda: all(_leads_all(cluster, node_id, count) for node_id in cluster.up), MANY_LOOK_SECONDS)
    add(f"{count:,} partitions of 3 replicas: until all brokers show their leaders", time.perf_counter() - began, "s",
        at_most=3)  # fmt: skip
    most = max(after - before for after, before in zip(_cpu_seconds(cluster), spent, strict=True))
    add(f"{count:,} partitions of 3 replicas: CPU of the broker that needed most", most, "CPU s")
    cluster.until_whole("many")
    controller = cluster.controller()
    began = time.perf_counter()
    cluster.kill(controller)
    waited_for(lambda: cluster.metadata().controller_id not in (-1, controller))
    add(f"{count:,} partitions: kill -9 of the controller to the next one, session of {SESSION_SECONDS:g} s",
        time.perf_counter() - began, "s", at_most=SESSION_SECONDS + 1)  # fmt: skip
    waited_for(lambda: _leads_all(cluster, cluster.up[0], count, but_by=controller))
    add(f"{count:,} partitions: kill -9 of the controller until others lead all that it led",
        time.perf_counter() - began, "s")  # fmt: skip
    began = time.perf_counter()
    cluster.start(controller)
    waited_for(lambda: _leads_all(cluster, controller, count))
    add(f"{count:,} partitions: start of a broker after kill -9, until it serves", time.perf_counter() - began, "s",
        at_most=5)  # fmt: skip
    add(f"{count:,} partitions: start of a broker after kill -9, its CPU",
        cost.cpu_seconds(cluster.brokers[controller].pid), "CPU s")  # fmt: skip
    cluster.until_whole("many")
    add(f"{count:,} partitions: the same, until all its replicas are in sync", time.perf_counter() - began, "s")


def waited_for(condition: Callable[[], bool], look_seconds: float = LOOK_SECONDS) -> None:
    """Wait until the condition is true, checking it every `look_seconds` seconds. If a broker does not respond, the
    condition counts as false.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(look_seconds)
    raise RuntimeError(f"not within {WAIT_SECONDS:.0f} s")


def _cpu_seconds(cluster: ReplicatedCluster) -> list[float]:
    """Return the CPU seconds of each broker."""
    return [cost.cpu_seconds(broker.pid) for broker in cluster.brokers.values()]


def _leads_all(cluster: ReplicatedCluster, node_id: int, count: int, but_by: int = 0) -> bool:
    """Return whether this broker knows the leaders of `count` partitions, and none of the leaders is `but_by`."""
    topics = cluster.metadata("many", node_id).topics
    leaders = [part.leader_id for topic in topics for part in topic.partitions]
    return len(leaders) == count and all(leader not in (-1, but_by) for leader in leaders)


def _is_produced_elsewhere(cluster: ReplicatedCluster, but_by: int, request: bytes) -> bool:
    leader = cluster.part("failing").leader
    return leader not in (-1, but_by) and _produce_once(cluster, leader, request)


def _produce_once(cluster: ReplicatedCluster, leader: int, request: bytes) -> bool:
    with contextlib.closing(RawClient(cluster.brokers[leader].port)) as client:
        for frame in client.pipeline(request, 1, 1):
            try:
                cost.check_produced(frame)
            except RuntimeError:
                return False
    return True
