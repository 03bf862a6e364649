"""Runs an honest client beside a hostile client, and measures its waits.

    with HonestProber(broker) as prober:
        before = prober.now()
        ...
        waits = prober.stop().between(before, prober.now())

Each wait is measured twice: in wall time, and without the time in which no processor was available (`processor_times`).
Tests check the wait without that time, because only the broker causes it, even on a machine with other load.
"""

from __future__ import annotations

import atexit
import json
import math
import selectors
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from broker_process import BrokerProcess
from honest_prober_process import INTERVAL_SECONDS, PATIENCE_SECONDS, TOPIC
from raw_client import RawClient

READY_SECONDS = 60.0
NS_PER_MS = 1_000_000

MAX_P99_MS = 20.0
MAX_WORST_MS = 100.0
"""The longest acceptable net wait of an honest client, in ms, whatever other clients do."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured request, with times in ns; `net` is the wait without the time in which no processor was
    available.
    """

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
    """All requests that a prober measured between two times."""

    samples: tuple[Sample, ...]
    failures: tuple[tuple[str, int, str], ...]
    left_out: float = 0.0
    """Idle seconds that this test does not measure, because other tests do; they count as requests that did not wait.
    Without these seconds, the slowest percent of a short measurement would be a single request.
    """

    def between(self, start: int, end: int) -> Waits:
        """Return the waits of requests that were in progress at any time between `start` and `end`, which are times of
        `HonestProber.now`.
        """
        return replace(
            self,
            samples=tuple(
                sample for sample in self.samples if sample.started <= end and sample.started + sample.wall >= start
            ),
            failures=tuple(failure for failure in self.failures if start <= failure[1] <= end),
        )

    def of_kind(self, *kinds: str) -> Waits:
        return replace(self, samples=tuple(sample for sample in self.samples if sample.kind in kinds))

    @property
    def net(self) -> Percentiles:
        return percentiles([*[sample.net for sample in self.samples], *self._at_rest()])

    @property
    def wall(self) -> Percentiles:
        return percentiles([*[sample.wall for sample in self.samples], *self._at_rest()])

    def _at_rest(self) -> list[int]:
        return [1] * round(self.left_out / INTERVAL_SECONDS)

    def worst_sample(self) -> Sample:
        return max(self.samples, key=lambda sample: sample.net)


def percentiles(waits: Iterable[int]) -> Percentiles:
    """Return percentiles of waits in ns. While a request waits, the prober does not send the next requests. Those
    requests are counted as if they had been sent, because a broker that is blocked for a second would otherwise have
    delayed only one request.
    """
    interval = int(INTERVAL_SECONDS * 1e9)
    all_waits = sorted(left for wait in waits for left in range(wait, 0, -interval))
    if not all_waits:
        return Percentiles(math.nan, math.nan, math.nan)
    at = len(all_waits) - 1
    p50, p99, worst = (all_waits[round(at * share)] / NS_PER_MS for share in (0.5, 0.99, 1.0))
    return Percentiles(p50, p99, worst)


def most_of(*beside: Percentiles | None) -> Percentiles:
    """Return the larger of the measured waits; tests allow such a wait, because the machine itself causes it. Without a
    measurement the allowance is zero, because a limit of NaN (not a number) would allow everything.
    """
    measured = [each for each in beside if each is not None and not math.isnan(each.worst)]
    return Percentiles(*(max((astuple(each)[at] for each in measured), default=0.0) for at in range(3)))


_at_hand: list[subprocess.Popen[str]] = []
"""Prober processes that have finished a measurement and wait for the next broker."""


def _a_process() -> subprocess.Popen[str]:
    if _at_hand:
        return _at_hand.pop()
    command = [sys.executable, str(Path(__file__).with_name("honest_prober_process.py"))]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


@atexit.register
def _end_all() -> None:
    while _at_hand:
        _end(_at_hand.pop())


class HonestProber:
    """The client runs from the beginning of the `with` block until `stop`."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker

    def __enter__(self) -> HonestProber:
        with RawClient(self.broker.port) as client:
            client.create_topic(TOPIC, 2)
        self.process = _a_process()
        self.has_told = False
        try:
            self._tell(f"{self.broker.port} {self.broker.pid}")
            assert self._line(READY_SECONDS).strip() == "ready"
        except BaseException:
            _end(self.process)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.has_told:
            _at_hand.append(self.process)
        else:
            _end(self.process)

    @staticmethod
    def now() -> int:
        """Return the present time of the clock that samples use."""
        return time.monotonic_ns()

    def stop(self) -> Waits:
        """Stop the client, and return its measurements."""
        self._tell("stop")
        told = json.loads(self._line(PATIENCE_SECONDS + READY_SECONDS))
        self.has_told = True
        samples = [Sample(kind, started, wall, net) for kind, started, wall, net in told["samples"]]
        return Waits(tuple(samples), tuple(tuple(failure) for failure in told["failures"]))

    def _tell(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()

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
    """Run an honest client of an idle broker during another measurement; only the machine (its disk, its memory and its
    other load) causes the waits of this client.
    """
    with BrokerProcess(directory / "idle") as broker, HonestProber(broker) as prober:
        yield prober
        broker.kill()
