"""Connections that send a large frame a few bytes at a time and never end it; over TLS each few in a record apart."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from raw_client import SIZE, frame, produce_request

from hostile.client import HostileClient
from hostile.logins import SETTINGS, with_tls
from hostile.scene import PATIENCE_SECONDS, Scene, read_away
from oncelog_protocol.api import ApiKey
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

SAID_BYTES = 1 << 20
ROUNDS = 40
"""At most."""
PAUSE_SECONDS = 0.1
WATCHED_SECONDS = 1.0


def _drip(scene: Scene, size: int, connect: Callable[[Scene], socket.socket]) -> str:
    """They all send their frames' beginning, and then a byte each, again and again."""
    begun = SIZE.pack(SAID_BYTES) + frame(_request(100), ApiKey.PRODUCE, 9)[SIZE.size :]
    writers = [connect(scene) for _ in range(size)]
    for writer in writers:
        writer.sendall(begun)
    rounds = min(ROUNDS, size // 4)
    for _round in range(rounds):
        for writer in writers:
            writer.sendall(b"x")
        time.sleep(PAUSE_SECONDS)
    scene.watch(WATCHED_SECONDS)
    return f"{size} connections with frames of which {len(begun) + rounds} of {SAID_BYTES:,} bytes come"


def _plainly(scene: Scene, _: None, size: int) -> str:
    return _drip(scene, size, lambda scene: scene.client().socket)


def _with_tls(scene: Scene, _: None, size: int) -> str:
    return _drip(scene, size, with_tls) + ", over TLS"


def _one_byte_each(scene: Scene, _: None, size: int) -> str:
    """A whole request, each byte of it a record that has to be decrypted: as fast as one client can make them."""
    data = frame(_request(size), ApiKey.PRODUCE, 9)
    shaken = with_tls(scene)
    for at in range(len(data)):
        shaken.sendall(data[at : at + 1])
    reader = threading.Thread(target=_read_one, args=(shaken,), daemon=True)  # not before: ssl is for one at a time
    reader.start()
    reader.join(PATIENCE_SECONDS)
    assert not reader.is_alive(), "the request is answered"
    return f"a Produce of {len(data):,} bytes in as many records of TLS"


def _read_one(connection: socket.socket) -> None:
    with suppress(OSError):
        read_away(connection)


def _request(size: int) -> object:
    return produce_request("small", 0, build_batch([Record(0, 1_700_000_000_000, None, bytes(size), [])]))


def _topic(scene: Scene, _: int) -> None:
    scene.make_topic("small")


CLIENTS = (
    HostileClient("slow writers", _plainly, size=500, prepare=_topic),
    HostileClient("slow writers with TLS", _with_tls, size=500, small=50, prepare=_topic, settings=SETTINGS),
    HostileClient(
        "a byte in each record of TLS", _one_byte_each, size=200_000, small=20_000, prepare=_topic, settings=SETTINGS
    ),
)
