"""`oncelog serve --workers`: the supervisor, and its workers by their broker ids."""

from __future__ import annotations

import os
import re
import select
import signal
import time
from pathlib import Path
from typing import Final

from broker_process import BrokerProcess

from oncelog_broker.local_cluster.ports import own_ports

PATIENCE_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.01
NODE_ID: Final = re.compile(rb"node\.id=(\d+)\0")


class WorkerProcesses(BrokerProcess):
    """A supervisor with workers 1, 2 ... on ports that follow its own."""

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
        """Broker id -> process id of the workers that run now."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        found = {}
        for pid in map(int, children):
            try:
                match = NODE_ID.findall(Path(f"/proc/{pid}/cmdline").read_bytes())
            except OSError:
                continue  # it has just ended
            if match:
                found[int(match[-1])] = pid
        return found

    def kill_worker(self, broker: int) -> int:
        """kill -9; returns the process id, when the process has ended."""
        pid = self.pids()[broker]
        with_end = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        ended(with_end)
        return pid

    def until_started_again(self, broker: int, after: int) -> int:
        """Wait until the worker has another process than `after`; returns its id."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.pids().get(broker, after) == after:
            assert time.monotonic() < deadline, f"worker {broker} is not started again"
            time.sleep(POLL_SECONDS)
        return self.pids()[broker]


def ended(descriptor: int) -> None:
    """Wait for the end of the process of a pidfd, which is closed."""
    ends = select.poll()
    ends.register(descriptor, select.POLLIN)
    assert ends.poll(PATIENCE_SECONDS * 1000), "the process does not end"
    os.close(descriptor)
