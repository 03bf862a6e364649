"""Ends this process when its parent process ends for any reason. This process detects the end of its parent at its
standard input, because the parent has the other end of that pipe.
"""

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
"""Seconds that this process has for its shutdown after the end of its input. After this time, the process kills itself,
because no other process would do that.
"""


def at_end_of_input(ended: Callable[[], None], grace_seconds: float = GRACE_SECONDS) -> None:
    """Call `ended` in another thread at the end of standard input; after another `grace_seconds`, kill this process.

    A thread reads the input, because an event loop cannot wait for every kind of file (/dev/null, a file, a terminal).
    """

    def watch() -> None:
        try:
            while _read():
                pass
        except OSError:
            pass  # treat the error as the end of input: the input was never open, or the terminal was closed
        ended()
        threading.Event().wait(grace_seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="end of standard input", daemon=True).start()


def _read() -> bytes:
    """Return the next bytes; b"" at the end of input."""
    while True:
        try:
            return os.read(STANDARD_INPUT, READ_BYTES)
        except BlockingIOError:  # wait for input, because a process that shares the input made it non-blocking
            select([STANDARD_INPUT], [], [])
