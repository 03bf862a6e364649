"""One hostile client against one broker, with an honest client next to it."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from broker_memory import BrokerMemory
from broker_process import BrokerProcess
from honest_prober import HonestProber, Percentiles, Waits, idle_prober

from hostile.client import HostileClient
from hostile.scene import Scene

RELEASE_SECONDS = 5.0
"""Seconds within which memory is returned once the client has gone."""
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


@dataclass(frozen=True)
class Pace:
    """The honest client's measuring times: before the hostile one comes, after it has gone, and in between, as a share
    of the watched time."""

    quiet_seconds: float
    afterwards_seconds: float
    watched: float


THOROUGH = Pace(1.0, 1.0, 1.0)
BRIEF = Pace(0.2, 0.2, 0.3)
"""A good result of a brief measurement need not be repeated: the earlier phase only makes the limits more generous."""


@dataclass(frozen=True)
class Measured:
    """Memory in MB. `trouble` is the error of the hostile client or its preparation, "" if there was none."""

    client: HostileClient
    seen: str
    trouble: str
    quiet: Percentiles
    waits: Waits
    idle: Percentiles | None
    """The waits of an honest client of an idle broker at the same time, if measured."""
    memory: tuple[int, int, int]
    """Before, at the peak, after."""
    is_running: bool
    has_traceback: bool


def run(
    client: HostileClient, directory: Path, size: int, *, pace: Pace = THOROUGH, beside_idle: bool = False
) -> Measured:
    """Start a broker in `directory`, let the client strike, end the broker. `beside_idle`: measure the waits of an idle
    broker's client at the same time."""
    broker = BrokerProcess(directory / "data", {**SETTINGS, **client.settings}, open_files=client.open_files)
    aside = idle_prober(directory) if beside_idle else nullcontext()
    with aside as idle, broker, Scene(broker, pace.watched) as scene, HonestProber(broker) as prober:
        prepared = client.prepare(scene, size)
        quiet_since = prober.now()
        time.sleep(pace.quiet_seconds)
        memory = BrokerMemory(broker.pid)
        memory.forget_peak()
        before = memory.now()
        began = prober.now()
        seen, trouble = _strike(client, scene, prepared, size)
        scene.close_connections()
        time.sleep(pace.afterwards_seconds)
        _wait_for_calm(memory, before + client.left_mb)
        ended = prober.now()
        waits = prober.stop()
        is_running = broker.is_running
        measured = Measured(
            client,
            seen,
            trouble,
            waits.between(quiet_since, began).net,
            replace(waits.between(began, ended), left_out=THOROUGH.afterwards_seconds - pace.afterwards_seconds),
            None if idle is None else idle.stop().between(began, ended).net,
            (before, memory.peak(), memory.now()) if is_running else (before, before, before),
            is_running,
            "Traceback" in broker.log.read_text(),
        )
        if is_running:
            broker.kill()  # it may be unable to stop, and closing thousands of logs takes long
    return measured


def _wait_for_calm(memory: BrokerMemory, wanted: int) -> None:
    deadline = time.monotonic() + RELEASE_SECONDS
    while memory.now() > wanted and time.monotonic() < deadline:
        time.sleep(0.1)


def _strike(client: HostileClient, scene: Scene, prepared: object, size: int) -> tuple[str, str]:
    try:
        return client.strike(scene, prepared, size), ""
    except (OSError, AssertionError) as trouble:
        return "", f"{type(trouble).__name__}: {trouble}"[:200]
