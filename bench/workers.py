"""Measures what several workers cost in comparison with a single broker: CPU for a record, idle CPU, memory, and the
time until a killed worker is back.

The workers and the single broker run at the same time, and get the same load in turns. The load uses many connections,
to the leaders of partitions of all workers: each connection has one record of 100 B in flight. The CPU time includes
all processes of a side, also the supervisor. The rate in wall-clock time depends on the machine, because the client
that makes the load also needs CPU: on two cores it takes a part of one core.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

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
TURNS: Final = 6
IDLE_SECONDS: Final = 10.0
KILLS: Final = 5


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

    def load(self, connections: list[tuple[RawClient, bytes]], rounds: int) -> tuple[float, float]:
        """Send one record on each connection, wait for all responses, and repeat this `rounds` times. Returns the CPU
        microseconds per request, and the requests per second of wall-clock time.
        """
        frame = b""
        cpu, started = self.cpu_seconds(), time.perf_counter()
        for _ in range(rounds):
            for client, request in connections:
                client.socket.sendall(request)
            for client, _ in connections:
                frame = client.read_frame()
        seconds = time.perf_counter() - started
        cost.check_produced(frame)
        count = rounds * len(connections)
        return (self.cpu_seconds() - cpu) / count * 1e6, count / seconds


def measure(add: Add, scale: int) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory) / "alone") as alone,
        WorkerProcesses(Path(directory) / "data", workers=WORKERS) as workers,
    ):
        subjects = (Subject("a broker alone", alone), Subject(f"{WORKERS} workers", workers))
        for count in CONNECTIONS:
            under_load(add, subjects, count, rounds=20_000 // scale // count)
        for subject in subjects:
            add(f"memory after that, {subject.name}", subject.megabytes(), "MB")
        idle = [subject.cpu_seconds() for subject in subjects]
        time.sleep(IDLE_SECONDS / scale)
        for subject, before in zip(subjects, idle, strict=True):
            used = (subject.cpu_seconds() - before) / (IDLE_SECONDS / scale)
            add(f"idle CPU, {subject.name}", used * 1000, "CPU ms/s")
        add("kill -9 of a worker to its next acknowledged record", back_after(workers), "s", at_most=1.0)


def under_load(add: Add, subjects: tuple[Subject, ...], count: int, rounds: int) -> None:
    connections = [subject.connect(count) for subject in subjects]
    found: list[list[tuple[float, float]]] = [[] for _ in subjects]
    for turn in range(TURNS):
        order = range(len(subjects)) if turn % 2 == 0 else reversed(range(len(subjects)))
        for index in order:
            found[index].append(subjects[index].load(connections[index], rounds))
    for subject, turns in zip(subjects, found, strict=True):
        cpu, rate = (statistics.median(values) for values in zip(*turns, strict=True))
        add(f"{count} connections, 1 record of 100 B each: {subject.name}", cpu, "CPU us/request")
        add(f"{count} connections, by the clock: {subject.name}", rate, "requests/s")
    for client, _ in itertools.chain(*connections):
        client.close()


def back_after(workers: WorkerProcesses) -> float:
    """Return the median of the seconds from kill -9 of a worker until a record is acknowledged in one of its
    partitions.
    """
    taken = []
    for _ in range(KILLS):
        client = RawClient(workers.port)
        ports = leader_ports(client)
        client.close()
        partition, port = next((each, port) for each, port in ports.items() if port == workers.port + WORKERS)
        started = time.perf_counter()
        workers.kill_worker(WORKERS)
        while not is_acknowledged(port, partition):
            time.sleep(0.005)
        taken.append(time.perf_counter() - started)
        # Wait, because a worker that has died several times in quick succession is restarted with a delay.
        time.sleep(11)
    return statistics.median(taken)


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
