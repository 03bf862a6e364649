"""Measures the resources that a process uses: CPU, CPU in user mode, and instructions if the machine counts them. The
module also runs loads in turns.

Two loads are compared by the ratio of their costs: the loads run A B A B, each turn gives one ratio, and the median is
reported. A temporary slowdown of the machine therefore affects both loads.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

import broker_cost as cost

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
PERF_EVENT_OPEN: Final = {"x86_64": 298, "aarch64": 241}.get(os.uname().machine)
PERF_ATTRIBUTES: Final = Struct("IIQQQQQ72x")
"""The beginning of Linux's perf_event_attr: type, size, config, period, sample type, read format, flags."""
HARDWARE, INSTRUCTIONS = 0, 1
EXCLUDE_KERNEL_AND_HYPERVISOR: Final = 1 << 5 | 1 << 6

Work = Callable[[], int]
"""A function that does a piece of work, and returns how many requests the work contained."""


class Spent(NamedTuple):
    """The resources used so far, or for one piece of work."""

    seconds: float
    cpu: float
    user: float
    """CPU seconds in user mode, at the resolution of the kernel's clock tick, and so useful only for long work."""
    instructions: float
    """Instructions in user mode; 0 if they cannot be counted."""

    def since(self, before: Spent) -> Spent:
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))


class Meter:
    """Reads the resources that the process `pid` has used. Instructions are counted for the process's main thread, in
    which oncelog's broker works.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._counter = _instructions_of(pid)

    @property
    def counts_instructions(self) -> bool:
        return self._counter is not None

    def read(self) -> Spent:
        instructions = 0 if self._counter is None else int.from_bytes(os.read(self._counter, 8), "little")
        with open(f"/proc/{self.pid}/stat") as stat:
            ticks = int(stat.read().rpartition(")")[2].split()[11])
        return Spent(time.perf_counter(), cost.cpu_seconds(self.pid), ticks / TICKS_PER_SECOND, instructions)

    def close(self) -> None:
        if self._counter is not None:
            os.close(self._counter)
            self._counter = None


def _instructions_of(pid: int) -> int | None:
    """Return a descriptor that counts the instructions; None if the machine (usually a virtual one) has no such
    counter.
    """
    if PERF_EVENT_OPEN is None:
        return None
    attributes = PERF_ATTRIBUTES.pack(
        HARDWARE, PERF_ATTRIBUTES.size, INSTRUCTIONS, 0, 0, 0, EXCLUDE_KERNEL_AND_HYPERVISOR
    )
    descriptor = ctypes.CDLL(None, use_errno=True).syscall(PERF_EVENT_OPEN, attributes, pid, -1, -1, 0)
    return None if descriptor < 0 else int(descriptor)


@dataclass
class Turns:
    """The cost of one load in each turn, for one piece of work."""

    each: list[Spent] = field(default_factory=list)

    def median(self, what: str) -> float:
        return statistics.median(getattr(turn, what) for turn in self.each)

    def against(self, other: Turns, what: str) -> float:
        """Return the median of the turns' ratios; for user-mode time, whose ticks are coarse, return the ratio of the
        sums.
        """
        pairs = [(getattr(a, what), getattr(b, what)) for a, b in zip(self.each, other.each, strict=True)]
        if what == "user":
            return sum(a for a, _ in pairs) / (sum(b for _, b in pairs) or 1.0)
        return statistics.median(a / b for a, b in pairs)


def take_turns(meter: Meter, loads: Mapping[str, Callable[[], Work]], rounds: int) -> dict[str, Turns]:
    """Run the loads in turns; each is prepared before its cost is counted. The first round is a warm-up."""
    turns = {name: Turns() for name in loads}
    for number in range(rounds + 1):
        for name, ready in loads.items():
            work = ready()
            before = meter.read()
            count = work()
            spent = meter.read().since(before)
            if number:
                turns[name].each.append(Spent(*(value / count for value in spent)))
    return turns


def percentile(values: list[float], share: float) -> float:
    """Return a percentile of `values`, without interpolation."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
