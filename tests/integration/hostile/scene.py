"""The broker that a hostile client attacks, and shared helpers: connections, topics, time."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from broker_process import BrokerProcess
from foreign_clients import eventually
from raw_client import PRODUCE_VERSION, SIZE, RawClient, frame, produce_request

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

PATIENCE_SECONDS = 30.0
TIMESTAMP = 1_700_000_000_000


class Scene:
    """The broker under attack, with helpers for hostile clients; a context manager that closes all their connections at
    its end. `watched` is the share of the requested watching time for which the clients really measure.
    """

    def __init__(self, broker: BrokerProcess, watched: float = 1.0) -> None:
        self.broker = broker
        self._watched = watched
        self._opened = ExitStack()

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_connections()

    def close_connections(self) -> None:
        self._opened.close()

    def client(self, timeout: float = PATIENCE_SECONDS) -> RawClient:
        return self._opened.enter_context(RawClient(self.broker.port, timeout))

    def opened(self, client: RawClient) -> RawClient:
        """Register a client, which is closed at the end of the scene."""
        return self._opened.enter_context(client)

    def at_the_end(self, close: Callable[[], None]) -> None:
        self._opened.callback(close)

    def watch(self, seconds: float) -> None:
        """Wait while the honest client measures response times."""
        time.sleep(seconds * self._watched)

    def ask(self, request: Any, key: ApiKey, version: int) -> str:
        """Send the request on a new connection, and read the response without decoding it."""
        data = frame(request, key, version)
        return f"{len(data):,} bytes, {self.answer_to(data)}"

    def answer_to(self, data: bytes) -> str:
        client = self.client()
        started = time.monotonic()
        try:
            client.socket.sendall(data)
            received = read_away(client.socket)
        except TimeoutError:
            return f"no answer in {PATIENCE_SECONDS:.0f} s"
        except OSError:
            return f"connection closed after {time.monotonic() - started:.1f} s"
        return f"answer of {received:,} bytes after {time.monotonic() - started:.1f} s"

    def find_coordinator(self, name: str, kind: CoordinatorType) -> None:
        """Wait until the coordinator is available."""
        client = self.client()
        request = FindCoordinatorRequest(key=name, key_type=kind)
        eventually(lambda: client.call(request, ApiKey.FIND_COORDINATOR, 2).error_code == 0, "there is a coordinator")

    def make_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        self.client().create_topic(name, partitions, **configs)

    def fill(self, topic: str, partitions: int, size: int) -> None:
        """Write one record of random bytes to each partition."""
        client = self.client()
        batch = build_batch([Record(0, TIMESTAMP, None, os.urandom(size), [])])
        for partition in range(partitions):
            answer = client.call(produce_request(topic, partition, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
            assert answer.responses[0].partition_responses[0].error_code == 0, answer


def read_away(connection: socket.socket) -> int:
    """Read the next response, drop it, and return its size in bytes. Raises ConnectionError if the connection has
    ended.
    """
    head = b""
    while len(head) < 4:
        head += _some(connection, 4 - len(head))
    (size,) = SIZE.unpack(head)
    left = size
    while left:
        left -= len(_some(connection, min(left, 1 << 20)))
    return int(size)


def _some(connection: socket.socket, size: int) -> bytes:
    data = connection.recv(size)
    if not data:
        raise ConnectionError("the broker closed the connection")
    return data


def fetch_of_all(topic: str, partitions: int, max_wait_ms: int = 0, partition_max_bytes: int = 127 * 1024) -> bytes:
    """Return a Fetch of every partition from its beginning, limited only by the maximum bytes of each partition."""
    asked = FetchRequest.FetchTopic
    wanted = [
        asked.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=partition_max_bytes)
        for partition in range(partitions)
    ]
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1 if max_wait_ms else 0,
        max_bytes=1 << 30,
        session_epoch=-1,
        topics=[asked(topic=topic, partitions=wanted)],
    )
    return frame(request, ApiKey.FETCH, 11)
