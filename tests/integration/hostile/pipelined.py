"""Sends many requests in one write, and does not read their responses."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from raw_client import PRODUCE_VERSION, frame, produce_request

from hostile.client import HostileClient
from hostile.scene import Scene, fetch_of_all
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.metadata import MetadataRequest

TOPICS, PARTITIONS = 10, 200
WATCHED_SECONDS = 3.0
STOPPED_SECONDS = 0.02


@contextmanager
def writing(connection: socket.socket, data: bytes) -> Iterator[None]:
    """Write the data to the socket in a thread until the `with` block ends, because the broker may stop reading before
    it has accepted all data.
    """

    def write() -> None:
        try:
            connection.sendall(data)
        except OSError:
            pass  # the broker refused the data, or the code below has shut down the socket

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    yield
    connection.shutdown(socket.SHUT_RDWR)
    thread.join()


def _many_partitions(scene: Scene, _: int) -> None:
    for number in range(TOPICS):
        scene.make_topic(f"many-{number}", PARTITIONS)


def _metadata(scene: Scene, _: None, size: int) -> str:
    data = frame(MetadataRequest(topics=None), ApiKey.METADATA, 9) * size
    with writing(scene.client().socket, data):
        scene.watch(WATCHED_SECONDS)
    return f"{size} Metadata requests of {TOPICS * PARTITIONS} partitions, {len(data):,} bytes"


def _some_records(scene: Scene, _: int) -> None:
    scene.make_topic("big", 10)
    scene.fill("big", 10, 120_000)


def _fetches(scene: Scene, _: None, size: int) -> str:
    """Send many fetches after a large frame, which makes the broker's buffer for this connection large. The broker is
    paused for a moment, so that it then finds all fetches at the same time.
    """
    client = scene.client()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    client.exchange(frame(produce_request("no-such-topic", 0, bytes(600_000)), ApiKey.PRODUCE, PRODUCE_VERSION))
    data = fetch_of_all("big", 10) * size
    os.kill(scene.broker.pid, signal.SIGSTOP)
    try:
        with writing(client.socket, data):
            scene.watch(STOPPED_SECONDS)
            os.kill(scene.broker.pid, signal.SIGCONT)
            scene.watch(WATCHED_SECONDS)
    finally:
        os.kill(scene.broker.pid, signal.SIGCONT)
    return f"{size} Fetch requests of 1.2 MB each, {len(data):,} bytes"


CLIENTS = (
    HostileClient("pipelined metadata", _metadata, size=500, small=50, prepare=_many_partitions),
    HostileClient("pipelined fetches", _fetches, size=1000, small=200, prepare=_some_records),
)
