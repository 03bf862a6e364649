"""Measures the CPU seconds of a tree of processes, including processes that have ended.

The kernel adds the time of an ended process to the `children` time of its parent, but only if the parent waits for the
process. Spark's daemons, which fork the Python workers, do not wait for them. The result therefore includes the time
that such an ended process had used before a measured round, but not the time that it used in its last round.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

TICKS: Final = os.sysconf("SC_CLK_TCK")
SETTLE_SECONDS: Final = 20.0
"""The maximum number of seconds for ending processes, because a query returns before its stream reader has ended."""


class Usage(NamedTuple):
    """CPU seconds of a process, and of its children that have ended and for which it has waited."""

    parent: int
    own: float
    children: float


Snapshot = dict[int, Usage]
"""Process id -> its usage."""


class ProcessTree:
    """A process with all its descendants. The tree also includes every process whose command line names `helper` and
    ends with the id of the root process, and the descendants of that process. Such a helper works for the root process,
    but has another parent.
    """

    def __init__(self, root: int, helper: str) -> None:
        self._root = root
        self._helper = helper

    def cpu_of(self, do: Callable[[], object]) -> float:
        """Call `do`, and return the CPU seconds that the tree uses for it, until the processes that were started last
        have ended or are idle.
        """
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
        """Return the usage when no process of the tree has used CPU for two clock ticks, so that an ending process has
        ended.
        """
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
        left = [self._root, *(pid for pid, usage in every.items() if self._is_helper(pid))]
        while left:
            pid = left.pop()
            if pid in kept or pid not in every:
                continue
            kept[pid] = every[pid]
            left += children.get(pid, ())
        return kept

    def _is_helper(self, pid: int) -> bool:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return self._helper.encode() in command and str(self._root).encode() in command


def _usage(path: Path) -> Usage | None:
    """Return the usage of a process; None if the process has ended meanwhile. An ended process for which nobody has
    waited still has an entry.
    """
    try:
        fields = (path / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    user, system, children_user, children_system = map(int, fields[11:15])
    return Usage(int(fields[1]), (user + system) / TICKS, (children_user + children_system) / TICKS)


def _total(snapshot: Snapshot) -> float:
    return sum(usage.own + usage.children for usage in snapshot.values())
