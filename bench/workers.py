"""Measures what several workers cost and serve in comparison with a single broker: CPU for a record, rate, idle CPU and
memory. `workers_kill.py` kills workers.

The workers and the single broker run at the same time, and get the same load in turns A B B A. The load uses many
connections, to the leaders of partitions of all workers: each connection has one record of 100 B in flight, or
PIPELINED of them, which cost the client little. The CPU time includes all processes of a side, also the supervisor.

On two cores the client takes a part of what a second worker would use, so there are two ratios. The first compares the
rates by the clock. The second compares two workers on two cores of their own with a single broker on one core: twice
the CPU per request of the single broker, divided by that of the workers. The first ratio approaches the second as the
client needs less CPU.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import broker_cost as cost
import psutil
from broker_process import BrokerProcess
from raw import RawClient, prepared
from table import Add
from worker_processes import WorkerProcesses

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.produce import ProduceRequest

TOPIC: Final = "workers"
WORKERS: Final = 2
PARTITIONS: Final = 4
CONNECTIONS: Final = (50, 500)
PIPELINED: Final = 16
TURNS: Final = 12
"""Turns of each subject: six times A B B A."""
IDLE_SECONDS: Final = 10.0


class Load(NamedTuple):
    """What one turn took: the broker's CPU microseconds per request, the requests per second of wall-clock time, and
    the client's CPU microseconds per request.
    """

    cpu: float
    rate: float
    client: float


class Subject:
    """A single broker, or several workers, under load."""

    def __init__(self, name: str, process: BrokerProcess) -> None:
        self.name = name
        self.process = process
        client = RawClient(process.port)
        cost.ask_for_topic(client, TOPIC, PARTITIONS, **cost.RECYCLED)
        self._ports = leader_ports(client)
        client.close()

    def pids(self) -> list[int]:
        """Return the ids of the process and of its workers."""
        workers = self.process.pids().values() if isinstance(self.process, WorkerProcesses) else ()
        return [self.process.pid, *workers]

    def cpu_seconds(self) -> float:
        return sum(map(cost.cpu_seconds, self.pids()))

    def megabytes(self) -> float:
        """Return the memory of all processes in MB. A page that several processes share is divided among them, so it
        counts once.
        """
        return sum(float(psutil.Process(pid).memory_full_info().pss) for pid in self.pids()) / 1e6

    def connect(self, count: int) -> list[tuple[RawClient, bytes]]:
        """Open `count` connections, to the leaders of all partitions in turn; return each connection with the request
        to send on it.
        """
        partitions = itertools.islice(itertools.cycle(range(PARTITIONS)), count)
        return [(RawClient(self._ports[each]), produce_request(each)) for each in partitions]

    def load(self, connections: list[tuple[RawClient, bytes]], rounds: int, in_flight: int) -> Load:
        """Send `in_flight` records on each connection, wait for all responses, and repeat this `rounds` times."""
        frame = b""
        bursts = [(client, request * in_flight) for client, request in connections]
        cpu, own, started = self.cpu_seconds(), time.process_time(), time.perf_counter()
        for _ in range(rounds):
            for client, burst in bursts:
                client.socket.sendall(burst)
            for client, _ in bursts:
                for _ in range(in_flight):
                    frame = client.read_frame()
        seconds = time.perf_counter() - started
        cost.check_produced(frame)
        count = rounds * len(connections) * in_flight
        own = time.process_time() - own
        return Load((self.cpu_seconds() - cpu) / count * 1e6, count / seconds, own / count * 1e6)


def measure(add: Add, scale: int) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory) / "alone") as alone,
        WorkerProcesses(Path(directory) / "data", workers=WORKERS) as workers,
    ):
        subjects = (Subject("a broker alone", alone), Subject(f"{WORKERS} workers", workers))
        for count in CONNECTIONS:
            under_load(add, subjects, count, 20_000 // scale // count, 1)
            under_load(add, subjects, count, max(1, 60_000 // scale // count // PIPELINED), PIPELINED)
        for subject in subjects:
            add(f"memory after that, {subject.name}", subject.megabytes(), "MB")
        idle = [subject.cpu_seconds() for subject in subjects]
        time.sleep(IDLE_SECONDS / scale)
        for subject, before in zip(subjects, idle, strict=True):
            used = (subject.cpu_seconds() - before) / (IDLE_SECONDS / scale)
            add(f"idle CPU, {subject.name}", used * 1000, "CPU ms/s")


def under_load(add: Add, subjects: tuple[Subject, Subject], count: int, rounds: int, in_flight: int) -> None:
    connections = [subject.connect(count) for subject in subjects]
    found: list[list[Load]] = [[] for _ in subjects]
    for turn in range(-2, TURNS):
        for index in (0, 1) if turn % 2 == 0 else (1, 0):
            load = subjects[index].load(connections[index], rounds, in_flight)
            if turn >= 0:  # the first turns are a warm-up
                found[index].append(load)
    records = "1 record of 100 B each" if in_flight == 1 else f"{in_flight} records of 100 B each"
    what = f"{count} connections, {records}"
    for subject, turns in zip(subjects, found, strict=True):
        cpu, rate, client = (statistics.median(values) for values in zip(*turns, strict=True))
        add(f"{what}: {subject.name}", cpu, "CPU us/request")
        add(f"{what}, by the clock: {subject.name}", rate, "requests/s")
        add(f"{what}, lowest turn: {subject.name}", min(turn.rate for turn in turns), "requests/s")
        add(f"{what}, highest turn: {subject.name}", max(turn.rate for turn in turns), "requests/s")
        add(f"{what}, the client beside {subject.name}", client, "CPU us/request")
    pairs = list(zip(*found, strict=True))
    rates = [many.rate / one.rate for one, many in pairs]
    add(f"{what}: rate of {WORKERS} workers to that of one, by the clock", statistics.median(rates), "ratio")
    served = [WORKERS * one.cpu / many.cpu for one, many in pairs]
    add(f"{what}: {WORKERS} workers on as many cores to one on one", statistics.median(served), "ratio", at_least=1.5)
    for client, _ in itertools.chain(*connections):
        client.close()


def is_acknowledged(port: int, partition: int) -> bool:
    """Return whether the leader at this port acknowledges a record now."""
    try:
        client = RawClient(port)
    except OSError:
        return False
    try:
        client.socket.sendall(produce_request(partition))
        cost.check_produced(client.read_frame())
    except (OSError, RuntimeError):
        return False
    finally:
        client.close()
    return True


def produce_request(partition: int) -> bytes:
    data = ProduceRequest.TopicProduceData.PartitionProduceData(index=partition, records=cost.batch(100, 100))
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])]
    )
    return prepared(request, ApiKey.PRODUCE, cost.PRODUCE_VERSION)


def leader_ports(client: RawClient) -> dict[int, int]:
    """Wait until all partitions have leaders; return the port of each partition's leader."""
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
    deadline = time.monotonic() + cost.LEADER_SECONDS
    while time.monotonic() < deadline:
        answer = client.call(request, ApiKey.METADATA, cost.METADATA_VERSION)
        ports = {each.node_id: each.port for each in answer.brokers}
        leaders = {each.partition_index: each.leader_id for each in answer.topics[0].partitions}
        if len(leaders) == PARTITIONS and ports.keys() >= set(leaders.values()):
            return {partition: ports[leader] for partition, leader in leaders.items()}
        time.sleep(0.01)
    raise RuntimeError(f"{TOPIC} has partitions without a leader")
