"""Decides whether a worker process hangs. The supervisor checks every CHECK_SECONDS whether the worker has made
progress since the last check; the checks are counted, not the seconds, so that a supervisor that was paused kills no
worker.

- A worker that serves writes a line to its standard output every BEAT_SECONDS, from its event loop. The supervisor
  needs these lines only with ZooKeeper: otherwise the supervisor serves the worker's metadata store, and sees its
  heartbeats there (`StoreServer`).
- A worker that starts may recover its logs for minutes, and its event loop may be busy meanwhile. So it hangs only if
  none of its threads has run at all: it neither computes, nor returns from a read of the disk, nor has a timer.
"""

from __future__ import annotations

import os
from typing import Final

BEAT: Final = b"beat\n"
BEAT_SECONDS: Final = 5.0
CHECK_SECONDS: Final = 5.0
SERVING_CHECKS: Final = 8
"""A worker that serves hangs after this number of checks without a line: 40 seconds."""
STARTING_CHECKS: Final = 12
"""A worker that starts hangs after this number of checks in which none of its threads has run: one minute."""
SWITCHES: Final = (b"voluntary_ctxt_switches:", b"nonvoluntary_ctxt_switches:")
USER_TIME, SYSTEM_TIME = 11, 12
"""Indexes of fields of /proc/PID/stat behind the name of the program, see proc(5)."""


class HangWatch:
    """Counts successive checks without progress."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._checks = 0

    def is_hung(self, progress: int | None, checks: int) -> bool:
        """Return whether the number `progress`, which grows with each progress, was the same in this check and in the
        `checks` checks before it. None means that the progress is not known, which counts as progress.
        """
        self._checks = self._checks + 1 if progress is not None and progress == self._last else 0
        self._last = progress
        return self._checks >= checks


def activity(pid: int) -> int | None:
    """Return a number that grows whenever a thread of the process runs: context switches, plus ticks of CPU time. None
    if the process has ended, or the system does not have these numbers.
    """
    total = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            total += _of_thread(f"/proc/{pid}/task/{thread}")
    except (OSError, ValueError, IndexError):
        return None
    return total


def _of_thread(directory: str) -> int:
    with open(f"{directory}/status", "rb") as status:
        switches = [int(line.split()[1]) for line in status if line.startswith(SWITCHES)]
    with open(f"{directory}/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    return sum(switches) + int(fields[USER_TIME]) + int(fields[SYSTEM_TIME])
