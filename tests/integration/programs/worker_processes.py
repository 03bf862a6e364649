"""Runs `oncelog serve --workers` for tests, and finds its processes: the supervisor, and the workers by their broker
ids.
"""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path
from typing import Final

from broker_process import BrokerProcess

from oncelog_broker.local_cluster.ports import own_ports

PATIENCE_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.01
NAME: Final = "oncelog-"
"""The prefix of the process name of a worker; the number of the worker follows."""


class WorkerProcesses(BrokerProcess):
    """A supervisor process with workers 1, 2 ... on the ports after the shared port."""

    def __init__(self, data: Path, settings: dict[str, str] | None = None, *, workers: int = 2) -> None:
        super().__init__(data, settings)
        self.workers = workers

    def _new_port(self) -> int:
        ports = own_ports(1 + self.workers)
        self._own_ports += ports
        return ports[0].number

    def _arguments(self) -> list[str]:
        return [*super()._arguments(), "--workers", str(self.workers)]

    def pids(self) -> dict[int, int]:
        """Return worker number -> process id, for the workers that run now."""
        assert self.process is not None
        found = {}
        for template in children(self.process.pid):
            for pid in children(template):
                try:
                    name = Path(f"/proc/{pid}/comm").read_text().strip()
                except OSError:
                    continue  # the worker process has just ended
                if name.startswith(NAME):
                    found[int(name.removeprefix(NAME))] = pid
        return found

    def kill_worker(self, broker: int) -> int:
        """Kill a worker with -9, wait until its process has ended, and return its process id."""
        pid = self.pids()[broker]
        with_end = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        ended(with_end)
        return pid

    def until_started_again(self, broker: int, after: int, patience_seconds: float = PATIENCE_SECONDS) -> int:
        """Wait until the worker runs in another process than the one with the id `after`, and return the new process
        id.
        """
        deadline = time.monotonic() + patience_seconds
        while self.pids().get(broker, after) == after:
            assert time.monotonic() < deadline, f"worker {broker} is not started again"
            time.sleep(POLL_SECONDS)
        return self.pids()[broker]


def children(pid: int) -> list[int]:
    """Return the ids of the child processes that a process has started and has not waited for."""
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return []


def ended(descriptor: int) -> None:
    """Wait until the process behind this pidfd has ended, and close the pidfd."""
    ends = select.poll()
    ends.register(descriptor, select.POLLIN)
    assert ends.poll(PATIENCE_SECONDS * 1000), "the process does not end"
    os.close(descriptor)
