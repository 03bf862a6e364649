"""Connections that send a large frame a few bytes at a time and never finish it; over TLS each group of bytes is in a
separate TLS record.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from raw_client import SIZE, frame, produce_request

from hostile.client import HostileClient
from hostile.logins import SETTINGS, with_tls
from hostile.scene import PATIENCE_SECONDS, Scene, read_away
from oncelog_protocol.api import ApiKey
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

SAID_BYTES = 1 << 20
ROUNDS = 40
"""The maximum number of rounds, in each of which every connection sends one more byte."""
PAUSE_SECONDS = 0.1
WATCHED_SECONDS = 1.0


def _drip(scene: Scene, size: int, connect: Callable[[Scene], socket.socket]) -> str:
    """Open `size` connections, send the beginning of a frame on each connection, and then repeatedly one byte on
    each.
    """
    begun = SIZE.pack(SAID_BYTES) + frame(_request(100), ApiKey.PRODUCE, 9)[SIZE.size :]
    writers = [connect(scene) for _ in range(size)]
    for writer in writers:
        writer.sendall(begun)
    rounds = min(ROUNDS, size // 4)
    for _round in range(rounds):
        for writer in writers:
            writer.sendall(b"x")
        scene.watch(PAUSE_SECONDS)
    scene.watch(WATCHED_SECONDS)
    return f"{size} connections with frames of which {len(begun) + rounds} of {SAID_BYTES:,} bytes come"


def _plainly(scene: Scene, _: None, size: int) -> str:
    return _drip(scene, size, lambda scene: scene.client().socket)


def _with_tls(scene: Scene, _: None, size: int) -> str:
    return _drip(scene, size, with_tls) + ", over TLS"


def _one_byte_each(scene: Scene, _: None, size: int) -> str:
    """Send a complete request as fast as one client can, with each byte in a separate TLS record that the broker must
    decrypt.
    """
    data = frame(_request(size), ApiKey.PRODUCE, 9)
    shaken = with_tls(scene)
    for at in range(len(data)):
        shaken.sendall(data[at : at + 1])
    shaken.settimeout(PATIENCE_SECONDS)
    read_away(shaken)  # read after sending, because OpenSSL cannot read and write in two threads simultaneously
    return f"a Produce of {len(data):,} bytes in as many records of TLS"


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
