"""Measures how long an honest client waits for a broker that another client loads (`honest_prober.py` of the tests).

The broker gets one core, the load and the honest client share the other. Beside other work, run such a part with `nice
-n -19` and not with real-time priority: the kernel's thread that delivers packets would get no processor.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Final

import broker_cost as cost
from honest_prober import HonestProber, Waits
from subjects import Subject
from table import Add

CONNECT: Final = "connect"
"""The kind of sample that opens a new connection."""


class Watch:
    """An honest client during all loads of one broker; `stop` ends it, and `add_rows` shows the waits of each load."""

    def __init__(self, prober: HonestProber) -> None:
        self._prober = prober
        self._loads: dict[str, tuple[int, int]] = {}
        self._waits: Waits | None = None

    @contextlib.contextmanager
    def during(self, load: str) -> Iterator[None]:
        began = self._prober.now()
        yield
        self._loads[load] = began, self._prober.now()

    def stop(self) -> None:
        self._waits = self._prober.stop()
        if self._waits.failures:
            raise RuntimeError(f"requests of the honest client failed: {self._waits.failures[:3]}")

    def waits(self, load: str) -> Waits:
        assert self._waits is not None
        return self._waits.between(*self._loads[load])

    def add_rows(self, add: Add, load: str, name: str, *, has_net: bool, at_most: float | None = None) -> None:
        """Add the longest wait and the 99th percentile, in ms. `has_net`: the goal is for the wait without the time in
        which the broker's loop had no processor, which is known only of a broker with one thread.
        """
        waits = self.waits(load)
        connecting, asking = (
            waits.of_kind(CONNECT),
            waits.of_kind(*{sample.kind for sample in waits.samples} - {CONNECT}),
        )
        add(f"{load}: longest wait of an honest client: {name}", asking.wall.worst, "ms")
        add(f"{load}: 99 % of its waits within: {name}", asking.wall.p99, "ms")
        if has_net:
            what = f"{load}: longest wait that the broker causes: {name}"
            add(what, asking.net.worst, "ms", at_most=at_most)
        if connecting.samples:
            add(f"{load}: longest wait for a new connection: {name}", connecting.wall.worst, "ms")


@contextlib.contextmanager
def watching(subject: Subject) -> Iterator[Watch]:
    """Run an honest client beside the loads of the block; the block calls `Watch.stop` while the broker still runs."""
    broker: Any = subject
    with cost.pinned(subject.pid, together=False), HonestProber(broker) as prober:
        os.sched_setaffinity(prober.process.pid, {max(os.sched_getaffinity(0))})
        yield Watch(prober)
