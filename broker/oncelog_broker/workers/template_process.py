"""The template process: imports the broker once, and forks the workers that the supervisor asks for.

Most of the start of a broker is imports. A forked worker begins when they are done, so that a killed worker is back
sooner, and the workers share the memory of the modules.

    supervisor   {"arguments", "role"}   fork a worker with these arguments of `oncelog`, its role (`WorkerRole`), and
                                         attached: standard input, standard output, and the connection to the store if
                                         there is one
    template     {"pid"}                 its answer, with a pidfd of the worker attached
                 {"error"}               or why it cannot fork now
                 {"ended", "code"}       a worker has ended, with this exit code (minus a signal's number)

Invariants: the process has no threads and no event loop. It ignores signals, and ends when the supervisor closes the
connection, at the latest with the supervisor; the workers that it has forked are not affected.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from oncelog_broker.workers.worker_role import WorkerRole

MODULES: Final = (
    "uvloop",
    "oncelog.cli.main",
    "oncelog_broker.command",
    "oncelog_broker.broker",
    "oncelog_broker.config.load",
    "oncelog_broker.metadata.stores.supervised.supervised_store",
)
"""The modules that a worker imports before it serves."""
MAX_MESSAGE_BYTES: Final = 128 * 1024
"""Bytes of one message: the arguments of a worker, at most."""
STREAMS: Final = 2
"""Standard input and output, the first two of the attached file descriptors."""
IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that reach all processes of a terminal or of a service: the supervisor decides when this process ends."""


class Wanted(NamedTuple):
    """The worker to fork."""

    arguments: list[str]
    role: WorkerRole
    descriptors: list[int]


class TemplateProcess:
    """Forks for the supervisor at the other end of `control`, a socket that keeps messages apart (SOCK_SEQPACKET)."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._workers: dict[int, int] = {}
        """pidfd -> process id of the workers that have not ended."""
        self._poll = select.poll()

    def serve(self) -> Wanted | None:
        """Fork workers. Returns in each worker, with what it is to run; in this process None, when the supervisor
        ends."""
        self._poll.register(self._control, select.POLLIN)
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._workers:
                    self._ended(descriptor)
                    continue
                message, descriptors, _, _ = socket.recv_fds(self._control, MAX_MESSAGE_BYTES, STREAMS + 1)
                if not message:
                    return None
                if self._fork(descriptors):
                    return _wanted(message, descriptors)

    def _fork(self, descriptors: list[int]) -> bool:
        """Fork a worker. Returns True in the worker."""
        try:
            pid = os.fork()
        except OSError as error:
            pid = -1
            self._control.send(json.dumps({"error": str(error)}).encode())
        if pid == 0:
            for each in self._workers:
                os.close(each)
            return True
        for each in descriptors:
            os.close(each)
        if pid > 0:
            ends = os.pidfd_open(pid)
            self._workers[ends] = pid
            self._poll.register(ends, select.POLLIN)
            socket.send_fds(self._control, [json.dumps({"pid": pid}).encode()], [ends])
        return False

    def _ended(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        os.close(descriptor)
        pid, status = os.waitpid(self._workers.pop(descriptor), 0)
        self._control.send(json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


def _wanted(message: bytes, descriptors: list[int]) -> Wanted:
    fields: dict[str, Any] = json.loads(message)
    return Wanted(fields["arguments"], WorkerRole.parse(fields["role"]), descriptors)


def become(wanted: Wanted) -> None:
    """Make this forked process the worker: its streams, its name, its arguments."""
    for each in IGNORED:
        signal.signal(each, signal.default_int_handler if each is signal.SIGINT else signal.SIG_DFL)
    for number, stream in enumerate(wanted.descriptors[:STREAMS]):
        os.dup2(stream, number)
        os.close(stream)
    role = wanted.role
    if len(wanted.descriptors) > STREAMS:
        role = role._replace(store_descriptor=wanted.descriptors[STREAMS])
    Path("/proc/self/comm").write_text(f"oncelog-{role.number}")  # in ps and top, all have the same command line
    sys.argv = ["oncelog", *wanted.arguments, "--worker", role.text]


def main(descriptor: int) -> None:
    """Serve the supervisor at the other end of a socket; in a forked process, run the worker."""
    for each in IGNORED:
        signal.signal(each, signal.SIG_IGN)
    for module in MODULES:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # otherwise the first full collection of each worker would copy all pages
    with socket.socket(fileno=descriptor) as control:
        wanted = TemplateProcess(control).serve()
    if wanted is not None:
        become(wanted)
        importlib.import_module("oncelog.cli.main").main()


if __name__ == "__main__":
    main(int(sys.argv[1]))
