"""Tests `oncelog serve --workers`: clients of one port, transactions over partitions of all workers, and killed
workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from recording_clients import PATIENCE_SECONDS, PRODUCERS, Abortable, Loop, RecordingProducer
from tests.support.background import Background
from warm_commands import COMMAND
from worker_processes import WorkerProcesses, ended

import oncelog.admin
from oncelog.admin import NewTopic
from oncelog.errors import KafkaError
from oncelog_broker.local_cluster.ports import own_ports
from oncelog_testing.application import ApplicationHistory
from oncelog_testing.history.events import Place

pytestmark = pytest.mark.usefixtures("in_a_file")
LIBRARIES = pytest.mark.parametrize("library", PRODUCERS)
PARTITIONS = 6
BROKERS = {1, 2}


class Cluster:
    """Requests that the tests send to one chosen worker, which is one of the processes of `oncelog serve --workers`."""

    def __init__(self, workers: BrokerProcess) -> None:
        self._workers = workers
        self._loop = Loop()

    def create_topic(self, name: str, partitions: int = PARTITIONS) -> None:
        """Create a topic, and wait until every broker knows the leaders of its partitions."""

        async def create() -> None:
            async with oncelog.admin.Admin(self._workers.address) as admin:
                await admin.create_topics([NewTopic(name, partitions, 1)])
                brokers = (await admin.describe_cluster()).brokers
            for broker in brokers:
                await self._until_led(f"127.0.0.1:{broker.port}", name)

        self._loop.run(create(), PATIENCE_SECONDS)

    async def _until_led(self, server: str, topic: str) -> None:
        async with oncelog.admin.Admin(server) as admin, asyncio.timeout(PATIENCE_SECONDS):
            while True:
                with contextlib.suppress(KafkaError):  # this worker may not know the topic yet
                    described = (await admin.describe_topics([topic]))[topic]
                    if all(partition.leader >= 0 for partition in described.partitions.values()):
                        return
                await asyncio.sleep(0.05)

    def leaders(self, topic: str) -> dict[int, int]:
        """Return partition -> broker id of its leader."""

        async def describe() -> dict[int, int]:
            async with oncelog.admin.Admin(self._workers.address) as admin:
                described = (await admin.describe_topics([topic]))[topic]
            return {partition.index: partition.leader for partition in described.partitions.values()}

        return self._loop.run(describe())

    def until_leaders(self, topic: str, leaders: set[int], *, other_than: int | None) -> None:
        """Wait until the metadata of every worker, except the worker `other_than`, show exactly these leaders of
        partitions (-1: none).
        """
        ports = [self._workers.port + each for each in BROKERS if each != other_than]
        servers = ",".join(f"127.0.0.1:{port}" for port in ports)

        async def wait() -> None:
            async with oncelog.admin.Admin(servers) as admin, asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    described = (await admin.describe_topics([topic]))[topic]
                    if {partition.leader for partition in described.partitions.values()} == leaders:
                        return
                    await asyncio.sleep(0.05)

        self._loop.run(wait(), PATIENCE_SECONDS)

    def brokers(self) -> dict[int, tuple[int, str | None]]:
        """Return broker id -> (port, rack)."""

        async def describe() -> dict[int, tuple[int, str | None]]:
            async with oncelog.admin.Admin(self._workers.address) as admin:
                return {each.node_id: (each.port, each.rack) for each in (await admin.describe_cluster()).brokers}

        return self._loop.run(describe())

    def close(self) -> None:
        self._loop.close()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[WorkerProcesses]:
    with WorkerProcesses(tmp_path / "data") as started:
        yield started
    assert "Traceback" not in started.log.read_text()


@pytest.fixture
def cluster(workers: WorkerProcesses) -> Iterator[Cluster]:
    asked = Cluster(workers)
    yield asked
    asked.close()


@pytest.fixture
def history(workers: WorkerProcesses) -> ApplicationHistory:
    return ApplicationHistory(lambda: workers.address)


class Transactions(Background):
    """Writes transactions with one record to each of these partitions, until the `with` block ends."""

    def __init__(self, producer: RecordingProducer, places: list[Place]) -> None:
        super().__init__(PATIENCE_SECONDS)
        self._producer = producer
        self._places = places
        self._committed = 0

    def until_more(self, count: int) -> None:
        """Wait until `count` more transactions are committed."""
        goal = self._committed + count
        self.until(lambda: self._committed >= goal, f"{count} transactions")

    def _work(self) -> None:
        while not self.is_over:
            self._producer.begin()
            try:
                for place in self._places:
                    self._producer.send(place)
                self._producer.commit()
            except Abortable:
                self._producer.abort()
            else:
                with self._progress:
                    self._committed += 1
                    self._progress.notify_all()


@LIBRARIES
def test_transactions_span_partitions_of_all_workers(
    workers: WorkerProcesses, cluster: Cluster, history: ApplicationHistory, library: str
) -> None:
    assert cluster.brokers() == {
        1: (workers.port + 1, socket.gethostname()),
        2: (workers.port + 2, socket.gethostname()),
    }
    cluster.create_topic("orders")
    assert set(cluster.leaders("orders").values()) == BROKERS
    places = [Place("orders", index) for index in range(PARTITIONS)]
    with (
        PRODUCERS[library](workers.address, history, "anna", "anna") as producer,
        Transactions(producer, places) as transactions,
    ):
        transactions.until_more(3)
    history.read("orders")
    history.check()


@LIBRARIES
def test_a_killed_worker_loses_nothing_and_doubles_nothing(
    workers: WorkerProcesses, cluster: Cluster, history: ApplicationHistory, library: str
) -> None:
    cluster.create_topic("orders")
    places = [Place("orders", index) for index in range(PARTITIONS)]
    with (
        PRODUCERS[library](workers.address, history, "anna", "anna") as producer,
        Transactions(producer, places) as transactions,
    ):
        for broker in (2, 1):
            transactions.until_more(3)
            killed = workers.kill_worker(broker)
            workers.until_started_again(broker, killed)
        transactions.until_more(3)
    history.read("orders")
    history.check()
    assert set(cluster.leaders("orders").values()) == BROKERS
    log = workers.log.read_text()
    assert "a worker ended and is started again worker=2 broker=2" in log
    assert all(" worker=" in line for line in log.splitlines())


def test_a_killed_worker_is_back_soon(
    workers: WorkerProcesses,
    cluster: Cluster,
    history: ApplicationHistory,
    record_property: Callable[[str, object], None],
) -> None:
    """The test measures the time from the kill of a worker to the next acknowledged record of one of its partitions: on
    a quiet machine less than a second. The test prints this time, and requires only that the record is acknowledged at
    some time.
    """
    cluster.create_topic("orders")
    place = next(Place("orders", index) for index, leader in cluster.leaders("orders").items() if leader == 2)
    with PRODUCERS["oncelog"](workers.address, history, "anna") as producer:
        producer.send(place)
        producer.flush()
        began = time.monotonic()
        workers.kill_worker(2)
        producer.send(place)
        producer.flush()
        seconds = time.monotonic() - began
        assert producer.acknowledged == 2
    record_property("back after", f"{seconds:.2f} s")
    print(f"a killed worker is back after {seconds:.2f} s")
    history.read("orders")
    history.check()


def test_the_other_worker_serves_while_one_is_paused(
    workers: WorkerProcesses, cluster: Cluster, history: ApplicationHistory
) -> None:
    cluster.create_topic("orders")
    leaders = cluster.leaders("orders")
    place = next(Place("orders", index) for index, leader in leaders.items() if leader == 1)
    with PRODUCERS["oncelog"](workers.address, history, "anna") as producer:
        producer.send(place)
        producer.flush()
        paused = workers.pids()[2]
        os.kill(paused, signal.SIGSTOP)
        try:
            producer.send(place)
            producer.flush()
        finally:
            os.kill(paused, signal.SIGCONT)
        assert producer.acknowledged == 2


def test_a_worker_that_was_paused_for_longer_than_its_session_comes_back(
    workers: WorkerProcesses, cluster: Cluster, history: ApplicationHistory
) -> None:
    """The paused worker is replaced as controller, and registers again when it continues."""
    cluster.create_topic("orders")
    places = [Place("orders", index) for index in range(PARTITIONS)]
    with PRODUCERS["oncelog"](workers.address, history, "anna") as producer:
        for broker, pid in workers.pids().items():  # one of the workers is the controller
            for place in places:
                producer.send(place)
            producer.flush()
            os.kill(pid, signal.SIGSTOP)
            try:
                cluster.until_leaders("orders", BROKERS - {broker} | {-1}, other_than=broker)
            finally:
                os.kill(pid, signal.SIGCONT)
            cluster.until_leaders("orders", BROKERS, other_than=None)
        for place in places:
            producer.send(place)
        producer.flush()
    history.read("orders")
    history.check()


def test_workers_end_with_their_supervisor_and_the_next_one_takes_over(
    workers: WorkerProcesses, cluster: Cluster, history: ApplicationHistory
) -> None:
    cluster.create_topic("orders")
    with PRODUCERS["oncelog"](workers.address, history, "anna") as producer:
        for index in range(PARTITIONS):
            producer.send(Place("orders", index))
        producer.flush()
    before = workers.pids()
    ends = [os.pidfd_open(pid) for pid in before.values()]
    workers.kill()
    workers.start()  # start while the workers of the killed supervisor still run
    for end in ends:
        ended(end)
    assert workers.pids().keys() == BROKERS
    assert not set(workers.pids().values()) & set(before.values())
    history.read("orders")
    history.check()
    for broker in BROKERS:
        killed = workers.kill_worker(broker)
        workers.until_started_again(broker, killed)


def test_a_stop_closes_the_logs_of_all_workers(workers: WorkerProcesses, cluster: Cluster) -> None:
    cluster.create_topic("orders")
    ends = [os.pidfd_open(pid) for pid in workers.pids().values()]
    assert workers.stop() == 0
    for end in ends:
        ended(end)
    for number in (1, 2):
        assert (workers.data / f"worker{number}" / ".kafka_cleanshutdown").exists()
    workers.start()
    cluster.until_leaders("orders", BROKERS, other_than=None)  # ready is the first worker; the others register later


def test_each_worker_has_metrics_and_health(tmp_path: Path) -> None:
    first = WorkerProcesses(tmp_path / "ports")._new_port()
    with WorkerProcesses(tmp_path / "data", {"http.listener": f"127.0.0.1:{first}"}):
        for port in (first, first + 1):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=20) as answer:
                assert answer.status == 200
        with urllib.request.urlopen(f"http://127.0.0.1:{first + 1}/metrics", timeout=20) as answer:
            assert b"oncelog" in answer.read()


def test_a_broker_becomes_worker_1_and_stays_divided(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as alone:
        history = ApplicationHistory(lambda: alone.address)
        asked = Cluster(alone)
        asked.create_topic("worker")  # the log of the topic's second partition is in the directory worker-1
        with PRODUCERS["oncelog"](alone.address, history, "anna") as producer:
            for index in range(PARTITIONS):
                producer.send(Place("worker", index))
            producer.flush()
        asked.close()
    with WorkerProcesses(data) as workers:
        asked = Cluster(workers)
        assert set(asked.leaders("worker").values()) == {1}
        asked.create_topic("later")
        assert set(asked.leaders("later").values()) == BROKERS
        history._bootstrap_servers = lambda: workers.address
        history.read("worker")
        history.check()
        asked.close()
    assert (data / "worker1" / "worker-1").is_dir()
    assert "has the data of 2 workers: start it with --workers 2" in refusal("--data", str(data))
    refused = refusal("--data", str(data), "--workers", "1")
    assert "has partitions in worker2, which 1 worker does not open" in refused
    assert "one of several workers" in refusal("--data", str(data / "worker1"))
    with WorkerProcesses(data, workers=3) as workers:
        asked = Cluster(workers)
        assert asked.brokers().keys() == {1, 2, 3}
        asked.close()
    with WorkerProcesses(data, workers=2) as workers:
        asked = Cluster(workers)
        assert asked.brokers().keys() == BROKERS, "worker 3 had no partitions"
        asked.close()


def refusal(*arguments: str) -> str:
    """Start `oncelog serve --workers` with settings that it refuses, and return its error message."""
    command = [COMMAND, "serve", "--set", "listeners=PLAINTEXT://127.0.0.1:0", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stdout == ""
    return done.stderr


def test_a_port_in_use_is_refused_before_anything_is_moved(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data"):
        pass
    ports = own_ports(4)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port := ports[1].number))
        other.listen()
        for first in (port, port - 1):  # both the port that all workers share and the port of the first worker
            listeners = f"listeners=PLAINTEXT://127.0.0.1:{first}"
            refused = refusal("--data", str(tmp_path / "data"), "--workers", "2", "--set", listeners)
            assert f"cannot listen on 127.0.0.1:{port}" in refused
    assert not (tmp_path / "data" / "oncelog.workers").exists()
    with BrokerProcess(tmp_path / "data"):
        pass


def test_two_supervisors_do_not_share_a_port(workers: WorkerProcesses, tmp_path: Path) -> None:
    listeners = f"listeners=PLAINTEXT://127.0.0.1:{workers.port}"
    refused = refusal("--data", str(tmp_path / "other"), "--workers", "2", "--set", listeners)
    assert f"cannot listen on 127.0.0.1:{workers.port}" in refused


def test_a_worker_that_cannot_start_ends_the_command(tmp_path: Path) -> None:
    (tmp_path / "data" / "worker2").mkdir(parents=True)
    (tmp_path / "data" / "worker2" / "meta.properties").write_text("version=1\nnode.id=9\ncluster.id=x\n")
    refused = refusal("--data", str(tmp_path / "data"), "--workers", "2")
    assert "worker 2 ended with exit code 1 before it served" in refused
    assert "worker2 belongs to" in refused, "the message of the worker itself"


@pytest.mark.parametrize("count", ["0", "many", "257"])
def test_the_number_of_workers_is_checked(tmp_path: Path, count: str) -> None:
    assert "--workers is a number from 1 to 256, or auto" in refusal(
        "--data", str(tmp_path / "data"), "--workers", count
    )
