"""Runs one hostile client against one broker, with an honest client beside it."""

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
"""Seconds within which the broker must return memory after the client has disconnected."""
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


@dataclass(frozen=True)
class Pace:
    """How long the honest client measures: the seconds before the hostile client starts, the seconds after it has
    ended, and the share of the time between start and end.
    """

    quiet_seconds: float
    afterwards_seconds: float
    watched: float


THOROUGH = Pace(1.0, 1.0, 1.0)
BRIEF = Pace(0.2, 0.2, 0.3)
"""A brief measurement need not be repeated if its result is good: a short first phase can only make the limits more
generous.
"""


@dataclass(frozen=True)
class Measured:
    """The result of the measurement of one hostile client; memory is in MB. `trouble` is the error of the hostile
    client or of its preparation, "" if no error occurred.
    """

    client: HostileClient
    seen: str
    trouble: str
    quiet: Percentiles
    waits: Waits
    idle: Percentiles | None
    """The waits of an honest client at an idle broker during the same time; None if not measured."""
    memory: tuple[int, int, int]
    """Memory of the broker in MB before the attack, at the peak, and after the hostile client has disconnected."""
    is_running: bool
    has_traceback: bool


def run(
    client: HostileClient, directory: Path, size: int, *, pace: Pace = THOROUGH, beside_idle: bool = False
) -> Measured:
    """Start a broker in `directory`, let the client attack, and stop the broker. With `beside_idle` the waits of a
    client of another, idle broker are measured at the same time.
    """
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
            broker.kill()  # the broker may be unable to stop, and it takes long to close thousands of logs
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
