"""Measures the processor time that TLS costs the broker for each small request, for each GB fetched, and for each new
connection.

`python bench/run.py --only tls` starts a broker with both listeners, and sends requests to both in turns, A B A B, so
that other load on the machine affects both. Only the broker's processor time counts; the results are the median of the
turns, and the median of their ratios.
"""

from __future__ import annotations

import socket
import ssl
import statistics
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import broker_cost as cost
from hostile.scene import fetch_of_all, read_away
from raw_client import RawClient, frame, produce_request
from secured_broker import SecuredBroker
from table import Add

from oncelog_protocol.api import ApiKey
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

ROUNDS = 5
FETCH_BYTES = 8 * 900_000

Connect = Callable[[], socket.socket]
Work = Callable[[Connect, int], float]
"""A function that does the work a given number of times, and returns the amount of work in the unit of the reported
result.
"""


def measure(add: Add, scale: int) -> None:
    with TemporaryDirectory() as directory, SecuredBroker(Path(directory)) as broker:
        with RawClient(broker.port("PLAINTEXT")) as client:
            client.create_topic("small")
            client.create_topic("large", 8)
            batch = build_batch([Record(0, 1_700_000_000_000, None, bytes(900_000), [])])
            for partition in range(8):
                client.call(produce_request("large", partition, batch), ApiKey.PRODUCE, 9)
        spent: dict[tuple[str, str], list[float]] = {}
        for turn in range(ROUNDS + 1):
            for name, (work, count) in WORK.items():
                for listener in ("PLAINTEXT", "SSL"):
                    with cost.pinned(broker.process.pid, together=True):
                        used = _measured(broker, listener, work, max(1, count // scale))
                    if turn:  # the first turn is a warm-up
                        spent.setdefault((name, listener), []).append(used)
    for name, unit, factor in (
        ("produce, 1 record of 100 B per request", "CPU us/request", 1e6),
        ("fetch, 900 KB batches", "CPU s/GB", 1.0),
        ("connections", "CPU us/connection", 1e6),
    ):
        plain, tls = spent[name, "PLAINTEXT"], spent[name, "SSL"]
        add(f"{name}, without TLS beside it", statistics.median(plain) * factor, unit)
        add(f"{name}, with TLS", statistics.median(tls) * factor, unit)
        ratio = statistics.median(after / before for before, after in zip(plain, tls, strict=True))
        add(f"{name}, TLS against none", ratio, "ratio")


def _connection(broker: SecuredBroker, listener: str) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", broker.port(listener)), 60)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if listener == "PLAINTEXT":
        return plain
    return broker.client_context().wrap_socket(plain, server_hostname="localhost")


def _measured(broker: SecuredBroker, listener: str, work: Work, count: int) -> float:
    before = cost.cpu_seconds(broker.process.pid)
    done = work(lambda: _connection(broker, listener), count)
    return (cost.cpu_seconds(broker.process.pid) - before) / done


def _requests(connect: Connect, count: int) -> float:
    batch = build_batch([Record(0, 1_700_000_000_000, None, b"x" * 100, [])])
    data = frame(produce_request("small", 0, batch), ApiKey.PRODUCE, 9)
    with connect() as connection:
        for _ in range(count):
            connection.sendall(data)
            read_away(connection)
    return count


def _gigabytes(connect: Connect, count: int) -> float:
    data = fetch_of_all("large", 8, partition_max_bytes=1 << 20)
    with connect() as connection:
        read = 0
        for _ in range(count):
            connection.sendall(data)
            read += read_away(connection)
    assert read >= count * FETCH_BYTES
    return read / 1e9


def _connections(connect: Connect, count: int) -> float:
    for _ in range(count):
        with connect() as connection:
            if isinstance(connection, ssl.SSLSocket):
                assert connection.version()
    return count


WORK: dict[str, tuple[Work, int]] = {
    "produce, 1 record of 100 B per request": (_requests, 3_000),
    "fetch, 900 KB batches": (_gigabytes, 40),
    "connections": (_connections, 1_000),
}
"""Maps a name to the work, and to how often the work is done in one turn."""
