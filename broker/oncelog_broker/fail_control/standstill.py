"""A broker that stands still: its connections stay open, and nothing is answered, as under SIGSTOP or a long pause.

The event loop's own thread waits here. Unlike a stopped process it can be told to go on, and to end, from within.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final

BEGIN_SECONDS: Final = 10.0


class Standstill:
    """Of one event loop; each method may be called from any other thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._is_over = False
        self._may_run = threading.Event()
        self._may_run.set()
        self._stands = threading.Event()

    def pause(self) -> bool:
        """Whether the loop stands still now; False where it was too busy to."""
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
        """Go on, and never stand still again."""
        with self._lock:
            self._is_over = True
            self._may_run.set()

    def _stand(self) -> None:
        self._stands.set()
        self._may_run.wait()
