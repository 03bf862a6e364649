"""What a wait was made of: work, want of a processor, sleep. From Linux's /proc; where there is none, all is zero."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Times(NamedTuple):
    """Times of a thread, in ns: how long it ran, and how long it waited for a processor."""

    ran: int = 0
    queued: int = 0


def net_of_other_work(wall: int, prober: Times, loop: Times, others: int) -> int:
    """The part of a wait of `wall` ns that its broker made, however many other processes there were.

    `prober` and `loop` are what the waiting thread and the broker's loop had of the processors meanwhile, `others` how
    long the broker's other threads were ready and had none, or a hypervisor had the processors. Such a thread may hold
    the interpreter's lock, for which the loop then sleeps: so that time counts against sleep, and never excuses a loop
    that runs. What is stolen from a loop that runs is not in the time that it ran.
    """
    waited = max(0, wall - prober.ran - prober.queued - loop.queued)
    asleep = max(0, waited - loop.ran)
    return waited - min(asleep, others)


class ThreadTimes:
    """The threads of a process; its first one runs the loop."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._files: dict[str, int] = {}

    def now(self) -> dict[int, Times]:
        """By thread. Empty once the process is gone."""
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
            return None  # it has just ended


def stolen_ns() -> int:
    """How long a hypervisor has kept this machine's processors from running what they had, in ns, since the start."""
    try:
        with open("/proc/stat", "rb") as file:
            return int(file.readline().split()[8]) * NS_PER_TICK
    except (OSError, IndexError, ValueError):
        return 0


def passed(before: Mapping[int, Times], after: Mapping[int, Times]) -> dict[int, Times]:
    """By thread; of one that came meanwhile all, of one that went nothing."""
    none = Times()
    return {
        thread: Times(times.ran - before.get(thread, none).ran, times.queued - before.get(thread, none).queued)
        for thread, times in after.items()
    }
