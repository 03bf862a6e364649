"""What a broker costs that has many partitions: its start, stop and rest. `python bench/growth.py [--keep]`.

For 1,000, 5,000 and 10,000 partitions, each with one record:

- the orderly stop, when each partition was written once, and the start after it
- a start after kill -9, when one partition was written since the last orderly stop, and when all were written
- the CPU of a broker without clients, over 10 seconds

And for a broker in an empty directory: the time from its start to its first acknowledged record, beside that of
`python -c "import uvloop"` in turns. A start is measured from the creation of the process: "ready" is its line on
standard output, "first ack" the response to a record with acks=all. Brokers are started as users start them, with
cached bytecode. The data directories are in TMPDIR, which must be on a disk: in memory an fsync costs nothing. On ext4,
a new file costs twenty times as much for some minutes after very many files were deleted, so the data directories are
deleted only at the end, and two runs must be some minutes apart.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT = Path(__file__).parent.parent
for folder in (ROOT, ROOT / "bench"):
    sys.path.insert(0, str(folder))

import broker_cost as cost  # noqa: E402
from kept import keep  # noqa: E402
from raw import RawClient, prepared  # noqa: E402
from table import Table  # noqa: E402

from oncelog_protocol.api import ApiKey  # noqa: E402
from oncelog_protocol.messages.produce import ProduceRequest  # noqa: E402

COMMAND: Final = str(Path(sys.executable).parent / "oncelog")
SIZES: Final = (1_000, 5_000, 10_000)
TOPIC_PARTITIONS: Final = 1_000
"""The number of partitions of one topic."""
PARTITIONS_OF_A_REQUEST: Final = 200
IDLE_SECONDS: Final = 10.0
QUIET_SECONDS: Final = 10.0
"""Seconds without clients before the idle CPU is measured, so that work of the start and of the first records ends."""
STARTS: Final = 11
ROUNDS: Final = 3
TIMEOUT_SECONDS: Final = 120.0


class Start(NamedTuple):
    """What a start took, in seconds; `cpu` until the first acknowledged record."""

    ready: float
    acknowledged: float
    cpu: float


class Growing:
    """A broker in a data directory that outlives its processes."""

    def __init__(self, data: Path, bytecode: Path) -> None:
        self._data = data
        self._environment = dict(os.environ)
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._environment["PYTHONPYCACHEPREFIX"] = str(bytecode)
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, topic: str, *, partitions: int = 1) -> Start:
        """Start a process, and write one record into partition 0 of `topic`, which is created if it does not exist."""
        request = produce_request(topic, range(1))
        began = time.perf_counter()
        self._process = subprocess.Popen(
            [COMMAND, "serve", "--data", str(self._data), "--set", "listeners=PLAINTEXT://127.0.0.1:0"],
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        ready = time.perf_counter() - began
        if " ready on " not in line:
            raise RuntimeError(f"the broker did not start: {line}")
        self.port = int(line.split(" ready on 127.0.0.1:", 1)[1].split(" ", 1)[0])
        with self.client() as client:
            if not has_topic(client, topic):
                cost.create_topic(client, topic, partitions)
            client.socket.sendall(request)
            cost.check_produced(client.read_frame())
        return Start(ready, time.perf_counter() - began, cost.cpu_seconds(self.pid))

    @contextlib.contextmanager
    def client(self) -> Iterator[RawClient]:
        with contextlib.closing(RawClient(self.port)) as client:
            client.socket.settimeout(TIMEOUT_SECONDS)
            yield client

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> float:
        """Stop the process in an orderly way; returns the seconds."""
        began = time.perf_counter()
        if self._end(signal.SIGTERM) != 0:
            raise RuntimeError("the broker did not stop in an orderly way")
        return time.perf_counter() - began

    def _end(self, number: int) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.send_signal(number)
        code = self._process.wait(TIMEOUT_SECONDS)
        self._process.stdout.close()
        self._process = None
        return code

    @property
    def is_running(self) -> bool:
        return self._process is not None


def topic_name(number: int) -> str:
    return f"many-{number:02d}"


def has_topic(client: RawClient, topic: str) -> bool:
    from oncelog_protocol.messages.metadata import MetadataRequest

    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    return not client.call(request, ApiKey.METADATA, cost.METADATA_VERSION).topics[0].error_code


def produce_request(topic: str, partitions: range) -> bytes:
    """Return a request with one record of 100 B for each of these partitions."""
    record = cost.batch(100, 100)
    data = ProduceRequest.TopicProduceData.PartitionProduceData
    parts = [data(index=index, records=record) for index in partitions]
    request = ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=parts)]
    )
    return prepared(request, ApiKey.PRODUCE, cost.PRODUCE_VERSION)


def write_all(client: RawClient, count: int) -> None:
    """Write one record into each of `count` partitions."""
    for number in range(count // TOPIC_PARTITIONS):
        for first in range(0, TOPIC_PARTITIONS, PARTITIONS_OF_A_REQUEST):
            client.socket.sendall(produce_request(topic_name(number), range(first, first + PARTITIONS_OF_A_REQUEST)))
            cost.check_produced(client.read_frame())


def grow(table: Table, directory: Path, bytecode: Path, count: int, scale: int) -> None:
    what = f"{count:,} partitions"
    broker = Growing(directory / f"data-{count}", bytecode)
    first = topic_name(0)
    try:
        broker.start(first, partitions=TOPIC_PARTITIONS)
        with broker.client() as client:
            began = time.perf_counter()
            for number in range(1, count // TOPIC_PARTITIONS):
                cost.create_topic(client, topic_name(number), TOPIC_PARTITIONS)
            table.add(f"{what}: until created", time.perf_counter() - began, "s")
            write_all(client, count)
        table.add(f"{what}: orderly stop, each written once", broker.stop(), "s", at_most=2)
        orderly, one, every, again, stops = [], [], [], [], []
        for _ in range(ROUNDS):
            orderly.append(broker.start(first))
            broker.kill()
            one.append(broker.start(first))
            with broker.client() as client:
                write_all(client, count)
            broker.kill()
            every.append(broker.start(first))
            broker.kill()
            again.append(broker.start(first))
            time.sleep(QUIET_SECONDS / scale)
            stops.append(broker.stop())
        tell(table, f"{what}: start after an orderly stop", orderly)
        goal = {1_000: 0.5, 5_000: 0.8, 10_000: 1.5}.get(count)
        tell(table, f"{what}: start after kill -9, 1 written since the stop", one, goal)
        tell(table, f"{what}: start after kill -9, all written since the stop", every, goal)
        tell(table, f"{what}: start after a second kill -9", again, goal)
        table.add(f"{what}: orderly stop {QUIET_SECONDS:g} s later", statistics.median(stops), "s")
        broker.start(first)
        time.sleep(QUIET_SECONDS / scale)
        before = cost.cpu_seconds(broker.pid)
        time.sleep(IDLE_SECONDS / scale)
        share = (cost.cpu_seconds(broker.pid) - before) / (IDLE_SECONDS / scale)
        table.add(f"{what}: idle CPU", share * 100, "%", at_most=1)
        table.add(f"{what}: resident memory", cost.resident_megabytes(broker.pid), "MB")
        table.add(f"{what}: orderly stop, 1 written", broker.stop(), "s")
    finally:
        if broker.is_running:
            broker.kill()


def tell(table: Table, what: str, starts: list[Start], goal: float | None = None) -> None:
    """Add the medians."""
    ready, acknowledged, cpu = (statistics.median(values) for values in zip(*starts, strict=True))
    table.add(f"{what}: ready", ready, "s", at_most=goal)
    table.add(f"{what}: first ack", acknowledged, "s")
    table.add(f"{what}: CPU", cpu, "s")


def seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def start_up(table: Table, directory: Path, bytecode: Path) -> None:
    """Measure starts in empty directories, in turns with a Python that only imports uvloop."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    python, starts = [], []
    for turn in range(STARTS + 1):
        took = seconds_of(lambda: subprocess.run([sys.executable, "-c", "import uvloop"], env=environment, check=True))
        broker = Growing(directory / f"empty-{turn}", bytecode)
        try:
            found = broker.start("first")
        finally:
            if broker.is_running:
                broker.kill()
        if turn:  # the first turn writes the bytecode
            python.append(took)
            starts.append(found)
    tell(table, "empty directory: start", starts)
    table.add('python -c "import uvloop"', statistics.median(python), "s")
    ratios = [start.acknowledged / took for start, took in zip(starts, python, strict=True)]
    table.add(
        'empty directory: first ack against python -c "import uvloop"', statistics.median(ratios), "ratio", at_most=2
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="1,000 partitions and short waits; not kept")
    arguments.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    arguments.add_argument("--keep", action="store_true", help="keep the figures as the part `growth`")
    arguments.add_argument("--before", action="store_true", help="keep them as the figures before a change")
    options = arguments.parse_args()
    table = Table()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 20_000), most))
    with tempfile.TemporaryDirectory() as made:
        directory, bytecode = Path(made), Path(made) / "bytecode"
        print(f"load average {os.getloadavg()[0]:.1f}", flush=True)
        start_up(table, directory, bytecode)
        for count in options.sizes[:1] if options.quick else options.sizes:
            grow(table, directory, bytecode, count, 10 if options.quick else 1)
    if options.before:
        keep({"growth, before": [dataclasses.replace(row, what=f"before: {row.what}") for row in table.rows]})
    elif options.keep and not options.quick:
        keep({"growth": table.rows})


if __name__ == "__main__":
    main()
