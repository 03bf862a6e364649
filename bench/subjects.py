"""The brokers that a part starts, kills and starts again: oncelog's and Apache Kafka's, behind one interface.

Both start as users start them. Kafka runs as a single KRaft node with a heap of 512 MB, as in `apache.py`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

import broker_cost as cost
from apache import JAVA_OPTIONS, KAFKA, OURS, RELEASE
from apache_kafka import ApacheKafka
from broker_process import BrokerProcess
from maven import Unavailable
from raw import RawClient
from warm_commands import COMMAND

NAMES: Final = (OURS, KAFKA)
FRESH_COMMAND: Final = os.path.join(os.path.dirname(COMMAND), ".", "oncelog")
"""The installed command under a path that `BrokerProcess` does not fork from a warm process."""


class Subject(Protocol):
    """A broker with a data directory that outlives its processes."""

    port: int
    data: Path

    @property
    def pid(self) -> int: ...

    def start(self) -> object: ...

    def stop(self) -> object: ...

    def kill(self) -> None: ...


@contextlib.contextmanager
def running(ours: Mapping[str, str], kafka: Mapping[str, str], name: str) -> Iterator[Subject]:
    """Run the broker called `name`, OURS or KAFKA, with its settings, in a new directory. Raises maven.Unavailable."""
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "data"
        subject: BrokerProcess | ApacheKafka = (
            BrokerProcess(data, dict(ours), command=FRESH_COMMAND)
            if name == OURS
            else ApacheKafka(RELEASE, data, kafka, JAVA_OPTIONS)
        )
        try:
            subject.start()
            yield subject
        finally:
            if subject.is_running:
                subject.kill()


@contextlib.contextmanager
def without_kafka_if_unavailable() -> Iterator[None]:
    """Let a part end with the rows that it has if Kafka cannot be fetched or started."""
    try:
        yield
    except Unavailable as reason:
        print(f"no comparison with {KAFKA}: {reason}")


def started(subject: Subject, topic: str) -> tuple[float, float]:
    """Start the broker; return the seconds until it acknowledges a record in partition 0 of `topic`, from the creation
    of its process, and its CPU seconds until then.
    """
    request = cost.produce_request(topic, cost.batch(100, 100))
    began = time.perf_counter()
    subject.start()
    with contextlib.closing(RawClient(subject.port)) as client:
        client.socket.settimeout(600)
        cost.wait_for_leader(client, topic)
        client.socket.sendall(request)
        cost.check_produced(client.read_frame())
        return time.perf_counter() - began, cost.cpu_seconds(subject.pid)
