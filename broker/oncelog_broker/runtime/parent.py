"""Ending with the process that started us, however that one dies: it holds the other end of our standard input."""

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
"""After that, who has not ended is killed: nobody is left who could."""


def at_end_of_input(ended: Callable[[], None], grace_seconds: float = GRACE_SECONDS) -> None:
    """Call `ended` in another thread at the end of standard input; and kill this process if that is not enough.

    A thread that reads, since an event loop cannot wait for every kind of file (/dev/null, a file, a terminal).
    """

    def watch() -> None:
        try:
            while _read():
                pass
        except OSError:
            pass  # closed from the start, or a terminal that is gone
        ended()
        threading.Event().wait(grace_seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="end of standard input", daemon=True).start()


def _read() -> bytes:
    """What comes next; b"" at the end."""
    while True:
        try:
            return os.read(STANDARD_INPUT, READ_BYTES)
        except BlockingIOError:  # who holds the other end, or shares this one, has made it so
            select([STANDARD_INPUT], [], [])
