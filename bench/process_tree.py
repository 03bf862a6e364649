"""CPU seconds of a tree of processes, those that have ended included.

The kernel adds the time of a process that has ended to its parent's `children` time, but only where the parent waits
for it. Spark's daemons, which fork the Python workers, do not wait. So the time that such a process had used before a
round is not missing at the end of it; what it used within its last round is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, NamedTuple

TICKS: Final = os.sysconf("SC_CLK_TCK")
SETTLE_SECONDS: Final = 20.0
"""How long processes that are about to end may take for it: a query returns before its stream reader has ended."""


class Usage(NamedTuple):
    """CPU seconds of a process, and of those of its children that have ended and were waited for."""

    parent: int
    own: float
    children: float


Snapshot = dict[int, Usage]
"""By the process id."""


class ProcessTree:
    """These processes and all their descendants."""

    def __init__(self, roots: Collection[int]) -> None:
        self._roots = tuple(roots)

    def cpu_of(self, do: Callable[[], object]) -> float:
        """CPU seconds that the tree uses for `do`, until the processes that it has started last have ended or stay."""
        before = self._snapshot()
        do()
        after = self._settled()
        used = sum(usage.own + usage.children for usage in after.values())
        used -= sum(usage.own + usage.children for usage in before.values())
        for pid, usage in before.items():
            if pid not in after and not self._was_waited_for(usage.parent, before, after):
                used += usage.own + usage.children
        return used

    @staticmethod
    def _was_waited_for(parent: int, before: Snapshot, after: Snapshot) -> bool:
        return parent not in before or parent not in after or after[parent].children > before[parent].children

    def _settled(self) -> Snapshot:
        """Read when no process of the tree has used CPU for two clock ticks, so that a process that ends has ended."""
        deadline = time.monotonic() + SETTLE_SECONDS
        last = self._snapshot()
        while time.monotonic() < deadline:
            time.sleep(0.2)
            found = self._snapshot()
            if found.keys() == last.keys() and _total(found) - _total(last) <= 2 / TICKS:
                return found
            last = found
        return last

    def _snapshot(self) -> Snapshot:
        every: Snapshot = {}
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and (usage := _usage(path)) is not None:
                every[int(path.name)] = usage
        kept: Snapshot = {}
        children: dict[int, list[int]] = {}
        for pid, usage in every.items():
            children.setdefault(usage.parent, []).append(pid)
        left = [pid for pid in self._roots if pid in every]
        while left:
            pid = left.pop()
            kept[pid] = every[pid]
            left += children.get(pid, ())
        return kept


def _usage(path: Path) -> Usage | None:
    """None where the process has ended meanwhile. One that has ended and was not waited for is still there."""
    try:
        fields = (path / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    user, system, children_user, children_system = map(int, fields[11:15])
    return Usage(int(fields[1]), (user + system) / TICKS, (children_user + children_system) / TICKS)


def _total(snapshot: Snapshot) -> float:
    return sum(usage.own + usage.children for usage in snapshot.values())
