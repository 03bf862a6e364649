"""The template process: imports the broker once, and forks the workers that the supervisor requests.

Most of the start time of a broker is spent on imports. A forked worker begins with all modules imported, so that a
killed worker is restarted sooner, and the workers share the memory of the modules.

    supervisor   {"arguments", "role"}   fork a worker with these arguments of `oncelog`, its role (`WorkerRole`), and
                                         attached: standard input, standard output, and the connection to the store if
                                         there is one
    template     {"pid"}                 the response, with a pidfd of the worker attached
                 {"error"}               or the reason why the template process cannot fork now
                 {"ended", "code"}       a worker has ended, with this exit code (negative: killed by a signal)

Invariants: the process has no threads and no event loop. The template process ignores signals. The template process
ends when the supervisor closes the connection or ends; the workers that were forked keep running.
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
    "oncelog_broker.serve",
    "oncelog_broker.broker",
    "oncelog_broker.config.load",
    "oncelog_broker.metadata.stores.supervised.supervised_store",
)
"""The modules that the template process imports, because a worker needs them before it serves."""
MAX_MESSAGE_BYTES: Final = 128 * 1024
"""Maximum bytes of one message, which contains the arguments of a worker."""
STREAMS: Final = 2
"""Standard input and standard output: the first two of the file descriptors attached to a request."""
IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that a terminal or service manager sends to all processes of the command. The template process ignores these
signals, because the supervisor decides when the template process ends.
"""


class Wanted(NamedTuple):
    """The request to fork a worker."""

    arguments: list[str]
    role: WorkerRole
    descriptors: list[int]


class TemplateProcess:
    """Forks workers for the supervisor at the other end of `control`, a socket that keeps messages apart
    (SOCK_SEQPACKET).
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._workers: dict[int, int] = {}
        """Maps the pidfd of each worker that has not ended to its process id."""
        self._poll = select.poll()

    def serve(self) -> Wanted | None:
        """Fork workers. Fork workers until the supervisor ends, and then return None. In each forked worker, this
        method returns the function that the worker must run.
        """
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
        """Fork a worker. Returns True in the worker, False in the template process."""
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
    """Turn this forked process into the worker: set its streams, its name and its arguments."""
    for each in IGNORED:
        signal.signal(each, signal.default_int_handler if each is signal.SIGINT else signal.SIG_DFL)
    for number, stream in enumerate(wanted.descriptors[:STREAMS]):
        os.dup2(stream, number)
        os.close(stream)
    role = wanted.role
    if len(wanted.descriptors) > STREAMS:
        role = role._replace(store_descriptor=wanted.descriptors[STREAMS])
    # the name distinguishes workers in ps and top, where all workers have the same command line
    Path("/proc/self/comm").write_text(f"oncelog-{role.number}")
    sys.argv = ["oncelog", *wanted.arguments, "--worker", role.text]


def main(descriptor: int) -> None:
    """Serve the supervisor at the other end of a socket; in a forked process, run the worker."""
    for each in IGNORED:
        signal.signal(each, signal.SIG_IGN)
    for module in MODULES:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # freeze the objects, because otherwise the first full collection of each worker would copy all pages
    with socket.socket(fileno=descriptor) as control:
        wanted = TemplateProcess(control).serve()
    if wanted is not None:
        become(wanted)
        importlib.import_module("oncelog.cli.main").main()


if __name__ == "__main__":
    main(int(sys.argv[1]))
