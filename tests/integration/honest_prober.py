"""An honest client beside a hostile one, and what it had to wait.

    with HonestProber(broker) as prober:
        before = prober.now()
        ...
        waits = prober.stop().between(before, prober.now())

A wait is measured twice: on the wall, and without the time that went by for want of a processor (`processor_times`).
The second is what the broker does to its clients, on a machine that has other work as well; tests look at that one.
"""

from __future__ import annotations

import json
import math
import selectors
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from broker_process import BrokerProcess
from honest_prober_process import INTERVAL_SECONDS, PATIENCE_SECONDS, TOPIC
from raw_client import RawClient

READY_SECONDS = 60.0
NS_PER_MS = 1_000_000

MAX_P99_MS = 20.0
MAX_WORST_MS = 100.0
"""What an honest client may wait, net, whatever others do."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One request: times in ns; `net` is the wait without the time that went by for want of a processor."""

    kind: str
    started: int
    wall: int
    net: int


@dataclass(frozen=True, slots=True)
class Percentiles:
    """In ms."""

    p50: float
    p99: float
    worst: float

    def __str__(self) -> str:
        return f"{self.p50:.1f} / {self.p99:.1f} / {self.worst:.0f}"


@dataclass(frozen=True)
class Waits:
    """All that a prober measured in a while."""

    samples: tuple[Sample, ...]
    failures: tuple[tuple[str, int, str], ...]

    def between(self, start: int, end: int) -> Waits:
        """Of the requests that were under way at any time between the two (as `HonestProber.now` tells it)."""
        return Waits(
            tuple(sample for sample in self.samples if sample.started <= end and sample.started + sample.wall >= start),
            tuple(failure for failure in self.failures if start <= failure[1] <= end),
        )

    def of_kind(self, *kinds: str) -> Waits:
        return Waits(tuple(sample for sample in self.samples if sample.kind in kinds), self.failures)

    @property
    def net(self) -> Percentiles:
        return percentiles([sample.net for sample in self.samples])

    @property
    def wall(self) -> Percentiles:
        return percentiles([sample.wall for sample in self.samples])

    def worst_sample(self) -> Sample:
        return max(self.samples, key=lambda sample: sample.net)


def percentiles(waits: Iterable[int]) -> Percentiles:
    """Of waits in ns. A request that waits keeps those from being sent that were due meanwhile: they are counted as if
    they had been, or a broker that stands still for a second would have made just one client wait."""
    interval = int(INTERVAL_SECONDS * 1e9)
    all_waits = sorted(left for wait in waits for left in range(wait, 0, -interval))
    if not all_waits:
        return Percentiles(math.nan, math.nan, math.nan)
    at = len(all_waits) - 1
    p50, p99, worst = (all_waits[round(at * share)] / NS_PER_MS for share in (0.5, 0.99, 1.0))
    return Percentiles(p50, p99, worst)


class HonestProber:
    """The process, from `with` to `stop`."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker

    def __enter__(self) -> HonestProber:
        with RawClient(self.broker.port) as client:
            client.create_topic(TOPIC, 2)
        command = [sys.executable, str(Path(__file__).with_name("honest_prober_process.py"))]
        command += [str(self.broker.port), str(self.broker.pid)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._line(READY_SECONDS).strip() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    @staticmethod
    def now() -> int:
        """On the clock of the samples."""
        return time.monotonic_ns()

    def stop(self) -> Waits:
        """End it and hear what it measured."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        told = json.loads(self._line(PATIENCE_SECONDS + READY_SECONDS))
        self.process.wait(READY_SECONDS)
        samples = [Sample(kind, started, wall, net) for kind, started, wall, net in told["samples"]]
        return Waits(tuple(samples), tuple(tuple(failure) for failure in told["failures"]))

    def _line(self, timeout: float) -> str:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(timeout), "the honest prober says nothing"
        line = self.process.stdout.readline()
        assert line, "the honest prober ended"
        return line


@contextmanager
def idle_prober(directory: Path) -> Iterator[HonestProber]:
    """An honest client of a broker that nobody else asks for anything: what the machine alone makes clients wait, its
    disk, its memory and its other work, while something else is measured."""
    with BrokerProcess(directory / "idle") as broker, HonestProber(broker) as prober:
        yield prober
        broker.kill()
