"""What TLS costs the broker: processor time for each small request, for each GB that is fetched, for each connection.

`PYTHONPATH=.:tests/integration python bench/tls_cost.py` starts a broker of its own with both listeners, and asks on
either of them in turns, so that whatever else the machine does meanwhile meets both alike. Processor time is the
broker's, the least of ROUNDS.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from hostile.scene import fetch_of_all, read_away
from raw_client import RawClient, frame, produce_request
from secured_broker import SecuredBroker

from oncelog_protocol.api import ApiKey
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

ROUNDS = 5
REQUESTS = 3_000
FETCHES = 40
FETCH_BYTES = 8 * 900_000
CONNECTIONS = 1_000


def main() -> None:
    print("processor time of the broker")
    with TemporaryDirectory() as directory, SecuredBroker(Path(directory)) as broker:
        process = psutil.Process(broker.process.pid)
        with RawClient(broker.port("PLAINTEXT")) as client:
            client.create_topic("small")
            client.create_topic("large", 8)
            batch = build_batch([Record(0, 1_700_000_000_000, None, bytes(900_000), [])])
            for partition in range(8):
                client.call(produce_request("large", partition, batch), ApiKey.PRODUCE, 9)
        least: dict[tuple[str, str], float] = {}
        for _ in range(ROUNDS):
            for listener in ("PLAINTEXT", "SSL"):
                for name, work in WORK.items():
                    cost = _measured(process, broker, listener, work)
                    least[name, listener] = min(cost, least.get((name, listener), cost))
    for name, unit in (("request", "µs"), ("GB", "s"), ("connection", "µs")):
        factor = 1e6 if unit == "µs" else 1.0
        plain, tls = (least[name, listener] * factor for listener in ("PLAINTEXT", "SSL"))
        print(f"for each {name}: plain {plain:.3g} {unit}, TLS {tls:.3g} {unit}, {tls / plain:.1f} times")


def _connection(broker: SecuredBroker, listener: str) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", broker.port(listener)), 60)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if listener == "PLAINTEXT":
        return plain
    return broker.client_context().wrap_socket(plain, server_hostname="localhost")


def _measured(
    process: psutil.Process, broker: SecuredBroker, listener: str, work: Callable[[Callable[[], Any]], float]
) -> float:
    def used() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    before = used()
    count = work(lambda: _connection(broker, listener))
    return (used() - before) / count


def _requests(connect: Callable[[], socket.socket]) -> float:
    batch = build_batch([Record(0, 1_700_000_000_000, None, b"x" * 100, [])])
    data = frame(produce_request("small", 0, batch), ApiKey.PRODUCE, 9)
    with connect() as connection:
        for _ in range(REQUESTS):
            connection.sendall(data)
            read_away(connection)
    return REQUESTS


def _gigabytes(connect: Callable[[], socket.socket]) -> float:
    data = fetch_of_all("large", 8, partition_max_bytes=1 << 20)
    with connect() as connection:
        read = 0
        for _ in range(FETCHES):
            connection.sendall(data)
            read += read_away(connection)
    assert read >= FETCHES * FETCH_BYTES
    return read / 1e9


def _connections(connect: Callable[[], socket.socket]) -> float:
    for _ in range(CONNECTIONS):
        with connect() as connection:
            if isinstance(connection, ssl.SSLSocket):
                assert connection.version()
    return CONNECTIONS


WORK: dict[str, Callable[[Callable[[], Any]], float]] = {
    "request": _requests,
    "GB": _gigabytes,
    "connection": _connections,
}

if __name__ == "__main__":
    main()
