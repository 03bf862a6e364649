"""Sends large frames, and frames that never end."""

from __future__ import annotations

import struct
import threading

from raw_client import frame

from hostile.client import HostileClient
from hostile.scene import Scene
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.messages.join_group import JoinGroupRequest

SAID_BYTES = 99 << 20
CONNECTIONS = 4
WATCHED_SECONDS = 4.0


def _unfinished(scene: Scene, _: None, megabytes: int) -> str:
    """Send four frames that declare 99 MB, and stop before their end."""

    def upload() -> None:
        try:
            connection = scene.client().socket
            connection.sendall(struct.pack(">ihhi", SAID_BYTES, ApiKey.PRODUCE, 9, 1))
            for _part in range(megabytes):
                connection.sendall(bytes(1 << 20))
        except OSError:
            pass  # the broker has stopped reading, so the send times out

    threads = [threading.Thread(target=upload, daemon=True) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    scene.watch(WATCHED_SECONDS)
    return f"{CONNECTIONS} frames that stop at {megabytes} of 99 MB"


def _join_with_much(scene: Scene, _: None, megabytes: int) -> str:
    """Join groups with members whose metadata remain stored after the members have disconnected."""
    for number in range(8):
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="p", metadata=bytes(megabytes << 20))
        request = JoinGroupRequest(
            group_id=f"group-{number}",
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=1_800_000,
            member_id="",
            group_instance_id="instance",
            protocol_type="x",
            protocols=[protocol],
        )
        client = scene.client()
        try:
            client.socket.sendall(frame(request, ApiKey.JOIN_GROUP, 5))
            scene.watch(0.3)
        except OSError:
            pass  # the broker refused the data
        client.socket.close()
    scene.watch(WATCHED_SECONDS)
    return f"8 JoinGroup requests of {megabytes} MB"


CLIENTS = (
    HostileClient("uploads that never end", _unfinished, size=90, small=90, peak_mb=300, left_mb=64),
    HostileClient(
        "members with large metadata",
        _join_with_much,
        size=86,
        small=16,
        prepare=lambda scene, size: scene.find_coordinator("group-0", CoordinatorType.GROUP),
        settings={"group.initial.rebalance.delay.ms": "3000"},
        peak_mb=300,
        left_mb=64,
    ),
)
