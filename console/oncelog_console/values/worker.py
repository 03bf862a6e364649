"""The program of a worker process, `python -m oncelog_console.values.worker`: reads tasks from standard input, and
writes results to standard output.

A record or an expression may exceed the limits on time or memory, and may even crash the process. In this case the
console loses only this worker process. If a task takes longer than TASK_SECONDS, SIGALRM ends the process, because no
exception can interrupt C code.
"""

from __future__ import annotations

import resource
import signal
import sys
from typing import IO

from oncelog_console.limits import TASK_SECONDS, WORKER_BYTES
from oncelog_console.values.reading import Reader
from oncelog_console.values.tasks import LENGTH_BYTES, packed, task_of


def main() -> None:
    """Serve tasks until standard input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (WORKER_BYTES, WORKER_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the console, which then ends this process
    serve(sys.stdin.buffer, sys.stdout.buffer)


def serve(tasks: IO[bytes], results: IO[bytes]) -> None:
    """Execute each task in order, and write its result."""
    reader = Reader()
    while len(length := tasks.read(LENGTH_BYTES)) == LENGTH_BYTES:
        body = tasks.read(int.from_bytes(length))
        signal.setitimer(signal.ITIMER_REAL, TASK_SECONDS)
        result = packed(reader.done(task_of(body)))
        signal.setitimer(signal.ITIMER_REAL, 0)
        results.write(result)
        results.flush()


if __name__ == "__main__":
    main()
