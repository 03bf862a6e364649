"""Pauses a broker: connections stay open, and no request gets a response, as under SIGSTOP or in a long GC pause.

During the pause, the thread of the event loop waits in this module. Unlike a process under SIGSTOP, the broker still
has running threads, which can resume or end it.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final

BEGIN_SECONDS: Final = 10.0


class Standstill:
    """Pauses and resumes one event loop; all methods may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._is_over = False
        self._may_run = threading.Event()
        self._may_run.set()
        self._stands = threading.Event()

    def pause(self) -> bool:
        """Pause the event loop. Returns whether the loop is paused now; False if the loop was too busy for
        BEGIN_SECONDS."""
        with self._lock:
            if self._is_over:
                return False
            if self._may_run.is_set():
                self._may_run.clear()
                self._stands.clear()
                self._loop.call_soon_threadsafe(self._stand)
        return self._stands.wait(BEGIN_SECONDS)

    def resume(self) -> None:
        with self._lock:
            self._may_run.set()

    def close(self) -> None:
        """Resume the event loop permanently; later calls of `pause` have no effect."""
        with self._lock:
            self._is_over = True
            self._may_run.set()

    def _stand(self) -> None:
        self._stands.set()
        self._may_run.wait()
