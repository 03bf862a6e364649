"""Pauses a broker: its connections stay open, and nothing is answered, as under SIGSTOP or in a long GC pause.

The thread of the event loop waits here. Unlike a stopped process, it can be resumed and ended from within.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final

BEGIN_SECONDS: Final = 10.0


class Standstill:
    """The pause of one event loop; all methods may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._is_over = False
        self._may_run = threading.Event()
        self._may_run.set()
        self._stands = threading.Event()

    def pause(self) -> bool:
        """Pause the loop. Returns whether it is paused now; False if it was too busy within BEGIN_SECONDS."""
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
        """Resume, and never pause again."""
        with self._lock:
            self._is_over = True
            self._may_run.set()

    def _stand(self) -> None:
        self._stands.set()
        self._may_run.wait()
