"""Measures a broker with 1,000 and 9,900 connections, beside Apache Kafka: `python bench/run.py --only connections`.

All connections come from one process. Each asks once when it is opened (ApiVersions), rests for IDLE_SECONDS, and then
sends records of 100 B. Then CHURNED connections are opened, ask and are closed, all of them together or FEW_AT_ONCE at
a time, in CHURNS rounds. An honest client measures its waits meanwhile (`waits.py`). A new connection waits for those
that were opened before it, so its waits have rows of their own. A JVM is warmed up with CHURNED connections and their
records before anything is measured.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

import broker_cost as cost
from apache import KAFKA, OURS
from raw import RawClient, prepared
from subjects import NAMES, Subject, running, without_kafka_if_unavailable
from table import Add
from waits import Watch, watching

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.api_versions import ApiVersionsRequest

COUNTS: Final = (1_000, 9_900)
"""A broker keeps half of its open files for its logs, so 20,000 allow nearly 10,000 connections."""
CHURNED: Final = 5_000
CHURNS: Final = 3
FEW_AT_ONCE: Final = 40
"""Connections that wait to be accepted at the same time; Kafka's listener has room for 50."""
WARM_CHURNS: Final = 3
WARM_RECORDS: Final = 20
AT_ONCE: Final = 500
"""Connections that have a record in flight at the same time."""
IDLE_SECONDS: Final = 5.0
CALM_SECONDS: Final = 1.0
OPEN_FILES: Final = 20_000
"""The limit of open files for this process and the broker."""
SETTINGS: Final = {
    "max.connections": str(OPEN_FILES),
    "max.connections.per.ip": str(OPEN_FILES),
}
TOPIC: Final = "connections"
LONGEST_MS: Final = 20.0
"""The goal for the longest wait of an honest client."""
ASK: Final = prepared(
    ApiVersionsRequest(client_software_name="bench", client_software_version="1"), ApiKey.API_VERSIONS, 3
)


def measure(add: Add, scale: int) -> None:
    """Measure both brokers; the number of connections is divided by `scale`."""
    # Raises ValueError if the hard limit is lower.
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with without_kafka_if_unavailable():
        for name in NAMES:
            with running(SETTINGS, {}, name) as subject, contextlib.closing(RawClient(subject.port)) as one:
                cost.create_topic(one, TOPIC)
                if name == KAFKA:
                    warm(subject, scale)
                with watching(subject) as watch:
                    _measure(add, subject, watch, name, scale)


def warm(subject: Subject, scale: int) -> None:
    for _ in range(WARM_CHURNS):
        clients = opened(subject, CHURNED // scale)
        for _ in range(WARM_RECORDS):
            send_records(clients[:AT_ONCE])
        closed(clients)


def _measure(add: Add, subject: Subject, watch: Watch, name: str, scale: int) -> None:
    with contextlib.closing(RawClient(subject.port)) as one:  # the first record creates the log's pages
        send_records([one])
    before = resident = cost.resident_megabytes(subject.pid)
    for count in COUNTS:
        _hold(add, subject, watch, name, count // scale, resident)
        time.sleep(CALM_SECONDS)
        resident = cost.resident_megabytes(subject.pid)
    churned = CHURNED // scale
    churns = {
        f"{churned:,} connections open and ask, then close together": churned,
        f"{churned:,} connections open, ask and close, {FEW_AT_ONCE} at a time": FEW_AT_ONCE,
    }
    for churn, at_once in churns.items():
        with watch.during(churn):
            spent = [cost.measured(subject.pid, _churn(subject, churned, at_once)) for _ in range(CHURNS)]
        add(f"{churn}: {name}", statistics.median(each.cpu_us_per_request for each in spent), "CPU us/connection")
        add(f"{churn}, by the clock: {name}", statistics.median(each.seconds for each in spent), "s")
    watch.stop()
    loads = [*(_opening(count // scale) for count in COUNTS), *(_records(count // scale) for count in COUNTS), *churns]
    for load in loads:
        watch.add_rows(add, load, name, has_net=name == OURS, at_most=LONGEST_MS)
    time.sleep(CALM_SECONDS)
    add(f"resident memory before any of these connections: {name}", before, "MB")
    add(f"resident memory after all of them: {name}", cost.resident_megabytes(subject.pid), "MB")


def _opening(count: int) -> str:
    return f"{count:,} connections opened"


def _records(count: int) -> str:
    return f"{count:,} connections, one record of 100 B from each"


def _hold(add: Add, subject: Subject, watch: Watch, name: str, count: int, resident: float) -> None:
    """Measure `count` connections that stay open; `resident` is the memory in MB without them."""
    clients: list[RawClient] = []

    def open_all() -> tuple[int, int]:
        clients.extend(opened(subject, count))
        return count, 0

    def send_all() -> tuple[int, int]:
        send_records(clients)
        return count, 0

    with watch.during(_opening(count)):
        spent = cost.measured(subject.pid, open_all)
    add(f"{_opening(count)}: {name}", spent.cpu_us_per_request, "CPU us/connection")
    time.sleep(CALM_SECONDS)
    idle = cost.cpu_seconds(subject.pid)
    time.sleep(IDLE_SECONDS)
    idle = (cost.cpu_seconds(subject.pid) - idle) / IDLE_SECONDS
    add(f"{count:,} idle connections beside one that asks 200 times a second: {name}", idle * 100, "% of a core")
    kilobytes = (cost.resident_megabytes(subject.pid) - resident) / count * 1000
    add(f"{count:,} connections: memory of each, after ApiVersions: {name}", kilobytes, "KB")
    send_all()
    with watch.during(_records(count)):
        rounds = [cost.measured(subject.pid, send_all) for _ in range(3)]
    add(f"{_records(count)}: {name}", statistics.median(r.cpu_us_per_request for r in rounds), "CPU us/request")
    rate = statistics.median(r.requests / r.seconds for r in rounds)
    add(f"{_records(count)}, by the clock: {name}", rate, "requests/s")
    kilobytes = (cost.resident_megabytes(subject.pid) - resident) / count * 1000
    add(f"{count:,} connections: memory of each, after records: {name}", kilobytes, "KB")
    closed(clients)


def _churn(subject: Subject, count: int, at_once: int) -> Callable[[], tuple[int, int]]:
    def work() -> tuple[int, int]:
        for first in range(0, count, at_once):
            closed(opened(subject, min(at_once, count - first)))
        return count, 0

    return work


def opened(subject: Subject, count: int) -> list[RawClient]:
    """Open `count` connections, FEW_AT_ONCE at a time, and ask for ApiVersions on each."""
    clients: list[RawClient] = []
    for first in range(0, count, FEW_AT_ONCE):
        few = [RawClient(subject.port) for _ in range(min(FEW_AT_ONCE, count - first))]
        for client in few:
            client.socket.sendall(ASK)
        for client in few:
            client.read_frame()
        clients += few
    return clients


def send_records(clients: Sequence[RawClient]) -> None:
    """Send one record on each connection, AT_ONCE of them in flight."""
    frame = b""
    for first in range(0, len(clients), AT_ONCE):
        for client in clients[first : first + AT_ONCE]:
            client.socket.sendall(RECORD)
        for client in clients[first : first + AT_ONCE]:
            frame = client.read_frame()
    cost.check_produced(frame)


def closed(clients: Sequence[RawClient]) -> None:
    """Close the connections without TIME_WAIT, so that the ports of this machine do not run out."""
    for client in clients:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()


RECORD: Final = cost.produce_request(TOPIC, cost.batch(100, 100))
