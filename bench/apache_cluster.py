"""Compares three brokers with three Apache Kafka brokers: `python bench/run.py --only apache-cluster`.

Both clusters run at the same time on one machine, with three replicas of each partition and acks=all, and get the same
raw load in turns A B B A. CPU is the CPU of all three brokers of a side, without ZooKeeper; the first Kafka node is
also the controller. Oncelog's brokers authenticate one another, as the cluster tests do; Kafka's do not.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import broker_cost as cost
import cluster
from apache import KAFKA, OURS, RELEASE
from apache_kafka import ApacheKafka
from maven import Unavailable
from meter import percentile
from raw import RawClient
from table import Add

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_protocol.messages.metadata import MetadataRequest

TOPIC: Final = "replicated"
JAVA_OPTIONS: Final = ("-Xms256m", "-Xmx256m", "-XX:+AlwaysPreTouch", "-XX:+UseSerialGC")
RUNS: Final = 3
TURNS: Final = 4
WARM_SECONDS: Final = 60.0
"""Seconds for which Kafka gets each kind of load before the first turn."""
NODES: Final = (1, 2, 3)
RECORD_BYTES: Final = 1000
BATCH_BYTES: Final = 64 << 10


@dataclass
class Side:
    """One cluster: the process ids of its brokers, and a connection to the leader of TOPIC."""

    name: str
    pids: list[int]
    leader: RawClient

    def cpu_seconds(self) -> float:
        return sum(map(cost.cpu_seconds, self.pids))


@dataclass(frozen=True)
class Load:
    """`run` returns the numbers of `metrics`, in their order; `goals` are those of the ratios to Kafka."""

    name: str
    metrics: tuple[tuple[str, str], ...]
    goals: tuple[float, ...]
    run: Callable[[Side], tuple[float, float]]


def compare(add: Add, scale: int) -> None:
    """Measure both clusters; the amount of work is divided by `scale`."""
    try:
        with contextlib.ExitStack() as stack:
            sides = (stack.enter_context(_ours()), stack.enter_context(_kafka()))
            for load in (_single(1000 // scale), _batches(32 // min(scale, 8))):
                _compare(add, load, sides, scale)
    except Unavailable as reason:
        print(f"no comparison with Apache Kafka: {reason}")


@contextlib.contextmanager
def _ours() -> Iterator[Side]:
    with cluster.running() as brokers:
        brokers.create_topic(TOPIC, NODES)
        leader = brokers.until_led(TOPIC).leader
        with contextlib.closing(RawClient(brokers.brokers[leader].port)) as client:
            yield Side(OURS, [each.pid for each in brokers.brokers.values()], client)


@contextlib.contextmanager
def _kafka() -> Iterator[Side]:
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        nodes: list[ApacheKafka] = []
        for number in NODES:
            node = ApacheKafka(
                RELEASE,
                Path(directory) / f"kafka-{number}",
                {"node.id": str(number), "min.insync.replicas": "2"},
                JAVA_OPTIONS,
                controller=nodes[0] if nodes else None,
            )
            nodes.append(stack.enter_context(node))
        with contextlib.closing(RawClient(nodes[0].port)) as client:
            _create_topic(client)
            port = _leader_port(client)
        with contextlib.closing(RawClient(port)) as leader:
            yield Side(KAFKA, [each.pid for each in nodes], leader)


def _create_topic(client: RawClient) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name=TOPIC, num_partitions=1, replication_factor=len(NODES), assignments=[], configs=[]
    )
    deadline = time.monotonic() + cost.LEADER_SECONDS
    request = CreateTopicsRequest(topics=[topic])
    while client.call(request, ApiKey.CREATE_TOPICS, cost.CREATE_TOPICS_VERSION).topics[0].error_code:
        # Until all brokers have registered, three replicas are too many.
        if time.monotonic() > deadline:
            raise RuntimeError("Apache Kafka cannot create a topic with three replicas")
        time.sleep(0.2)


def _leader_port(client: RawClient) -> int:
    """Wait until the partition has a leader and all replicas are in sync; return the leader's port."""
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
    deadline = time.monotonic() + cost.LEADER_SECONDS
    while time.monotonic() < deadline:
        answer = client.call(request, ApiKey.METADATA, cost.METADATA_VERSION)
        ports = {each.node_id: int(each.port) for each in answer.brokers}
        for partition in answer.topics[0].partitions:
            if partition.leader_id in ports and len(partition.isr_nodes) == len(NODES):
                return ports[partition.leader_id]
        time.sleep(0.1)
    raise RuntimeError(f"{TOPIC} has no leader with all replicas in sync")


def _single(count: int) -> Load:
    request = cost.produce_request(TOPIC, cost.batch(RECORD_BYTES, RECORD_BYTES))

    def run(side: Side) -> tuple[float, float]:
        waits, cpu = [], side.cpu_seconds()
        for _ in range(count):
            began = time.perf_counter()
            for frame in side.leader.pipeline(request, 1, 1):
                cost.check_produced(frame)
            waits.append((time.perf_counter() - began) * 1000)
        return statistics.median(waits), (side.cpu_seconds() - cpu) / count * 1e6

    metrics = (("p50", "ms"), ("CPU of all brokers", "CPU us/record"))
    return Load("three replicas, acks=all, 1 record of 1000 B in flight", metrics, (1.0, 0.7), run)


def _batches(megabytes: int) -> Load:
    batch = cost.batch(BATCH_BYTES, RECORD_BYTES)
    request = cost.produce_request(TOPIC, batch)
    records = int.from_bytes(batch[57:61], "big")
    count = max(8, (megabytes << 20) // len(batch))

    def run(side: Side) -> tuple[float, float]:
        began, cpu = time.perf_counter(), side.cpu_seconds()
        for frame in side.leader.pipeline(request, count, 8):
            cost.check_produced(frame)
        seconds = time.perf_counter() - began
        million = count * records / 1e6
        return 1 / (million / seconds), (side.cpu_seconds() - cpu) / million

    metrics = (("time", "s per million records"), ("CPU of all brokers", "CPU s per million records"))
    return Load("three replicas, acks=all, 64 KB batches of 1 KB records", metrics, (1 / 3, 0.25), run)


def _compare(add: Add, load: Load, sides: tuple[Side, Side], scale: int) -> None:
    ours, kafka = sides
    until = time.monotonic() + WARM_SECONDS / scale
    load.run(ours)
    while time.monotonic() < until:
        load.run(kafka)
    found: list[list[tuple[float, float]]] = [[] for _ in load.metrics]
    for turn in range(TURNS * (RUNS if scale == 1 else 1)):
        numbers = {side.name: load.run(side) for side in (sides if turn % 2 == 0 else reversed(sides))}
        for index, pairs in enumerate(found):
            pairs.append((numbers[OURS][index], numbers[KAFKA][index]))
    for (metric, unit), goal, pairs in zip(load.metrics, load.goals, found, strict=True):
        what = f"{load.name}: {metric}"
        ratios = [mine / theirs for mine, theirs in pairs]
        add(f"{what}: {OURS}", statistics.median(mine for mine, _ in pairs), unit)
        add(f"{what}: {KAFKA}", statistics.median(theirs for _, theirs in pairs), unit)
        add(f"{what}: ratio, median of all turns", statistics.median(ratios), "ratio", at_most=goal)
        add(f"{what}: ratio, 10th percentile", percentile(ratios, 0.1), "ratio")
        add(f"{what}: ratio, 90th percentile", percentile(ratios, 0.9), "ratio")
