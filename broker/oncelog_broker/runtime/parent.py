"""Ends this process with its parent, however that dies: the parent holds the other end of our standard input."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from select import select
from typing import Final

STANDARD_INPUT: Final = 0
READ_BYTES: Final = 4096
GRACE_SECONDS: Final = 10.0
"""Seconds after the end of input until this process kills itself if it has not ended: no other process would."""


def at_end_of_input(ended: Callable[[], None], grace_seconds: float = GRACE_SECONDS) -> None:
    """Call `ended` in another thread at the end of standard input; after `grace_seconds` kill this process.

    A thread reads, since an event loop cannot wait for every kind of file (/dev/null, a file, a terminal).
    """

    def watch() -> None:
        try:
            while _read():
                pass
        except OSError:
            pass  # closed from the start, or the terminal was closed
        ended()
        threading.Event().wait(grace_seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="end of standard input", daemon=True).start()


def _read() -> bytes:
    """The next bytes; b"" at the end of input."""
    while True:
        try:
            return os.read(STANDARD_INPUT, READ_BYTES)
        except BlockingIOError:  # the parent, or a process that shares the input, made it non-blocking
            select([STANDARD_INPUT], [], [])
