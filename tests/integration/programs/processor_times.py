"""Divides a wait into work, lack of a processor, and sleep. The values are read from Linux's /proc; on other systems
all values are zero.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Times(NamedTuple):
    """Times of a thread in ns: how long it ran, and how long it was ready but waited for a processor."""

    ran: int = 0
    queued: int = 0


def net_of_other_work(wall: int, prober: Times, loop: Times, others: int) -> int:
    """Return the part of a wait of `wall` ns that the broker caused, however many other processes ran.

    `prober` and `loop` are the processor times of the waiting thread and of the broker's loop. `others` is the time in
    which the broker's other threads were ready but had no processor, or a hypervisor had taken the processor. A thread
    without a processor may hold the interpreter's lock, and the loop then sleeps until the lock is free. The time of
    such threads is therefore subtracted only from the time in which the loop sleeps, and never from the time in which
    it runs. The processor time of a running loop does not include time that a hypervisor has taken.
    """
    waited = max(0, wall - prober.ran - prober.queued - loop.queued)
    asleep = max(0, waited - loop.ran)
    return waited - min(asleep, others)


class ThreadTimes:
    """The threads of a process; the first thread runs the event loop."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._files: dict[str, int] = {}

    def now(self) -> dict[int, Times]:
        """By thread. Return the times of each thread; empty after the process has ended."""
        try:
            threads = os.listdir(f"/proc/{self._pid}/task")
        except OSError:
            threads = []
        for ended in self._files.keys() - set(threads):
            os.close(self._files.pop(ended))
        return {int(thread): times for thread in threads if (times := self._of(thread)) is not None}

    def close(self) -> None:
        while self._files:
            os.close(self._files.popitem()[1])

    def _of(self, thread: str) -> Times | None:
        try:
            if thread not in self._files:
                self._files[thread] = os.open(f"/proc/{self._pid}/task/{thread}/schedstat", os.O_RDONLY)
            ran, queued, _ = os.pread(self._files[thread], 80, 0).split()
            return Times(int(ran), int(queued))
        except (OSError, ValueError):
            return None  # the thread has ended since the listing, so it has no times


def stolen_ns() -> int:
    """Return how long a hypervisor has kept this machine's processors from running, in ns, since the machine
    started.
    """
    try:
        with open("/proc/stat", "rb") as file:
            return int(file.readline().split()[8]) * NS_PER_TICK
    except (OSError, IndexError, ValueError):
        return 0


def passed(before: Mapping[int, Times], after: Mapping[int, Times]) -> dict[int, Times]:
    """Return the time that passed for each thread between two readings; for a new thread all its time, for an ended
    thread nothing.
    """
    none = Times()
    return {
        thread: Times(times.ran - before.get(thread, none).ran, times.queued - before.get(thread, none).queued)
        for thread, times in after.items()
    }
