"""Connections that request much data and read nothing."""

from __future__ import annotations

from hostile.client import HostileClient
from hostile.logins import SETTINGS, with_tls
from hostile.scene import Scene, fetch_of_all

PARTITIONS = 400
WATCHED_SECONDS = 3.0
MAPPED_MB = 50
"""Megabytes that are read from mapped files; their pages count as the broker's memory until other processes need the
memory.
"""
PEAK_MB, LEFT_MB = 64 + MAPPED_MB, 32 + MAPPED_MB


def _fill(scene: Scene, _: int) -> None:
    scene.make_topic("big", PARTITIONS)
    scene.fill("big", PARTITIONS, 125_000)


def _one_fetch_each(scene: Scene, _: None, size: int) -> str:
    data = fetch_of_all("big", PARTITIONS)
    for _number in range(size):
        scene.client().socket.sendall(data)
    scene.watch(WATCHED_SECONDS)
    return f"{size} connections with one Fetch of 50 MB each"


def _one_fetch_each_with_tls(scene: Scene, _: None, size: int) -> str:
    """With TLS, encrypted bytes are on the heap, even if the records are not."""
    data = fetch_of_all("big", PARTITIONS)
    for _number in range(size):
        shaken = with_tls(scene)
        shaken.sendall(data)
    scene.watch(WATCHED_SECONDS)
    return f"{size} connections with one Fetch of 50 MB each, over TLS"


CLIENTS = (
    HostileClient("slow readers", _one_fetch_each, size=30, small=4, prepare=_fill, peak_mb=PEAK_MB, left_mb=LEFT_MB),
    HostileClient(
        "slow readers with TLS",
        _one_fetch_each_with_tls,
        size=30,
        small=4,
        prepare=_fill,
        settings=SETTINGS,
        peak_mb=PEAK_MB,
        left_mb=LEFT_MB,
    ),
)
