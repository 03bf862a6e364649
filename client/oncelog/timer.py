"""A timer that can be set to an earlier time, for components that must act at the earliest of several times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timer:
    """A timer that calls the function `ring` once, at the earliest of the times that were set since the last call of
    `ring`.

    The time is stored in this object, because a uvloop timer handle does not report its time after that time has
    passed.
    """

    __slots__ = ("_handle", "_loop", "_ring", "_when")

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle | None = None
        self._when = 0.0

    def set(self, when: float) -> None:
        """Call `ring` at `when` (loop time) or earlier."""
        if self._handle is not None:
            if self._when <= when:
                return
            self._handle.cancel()
        self._when = when
        self._handle = self._loop.call_at(when, self._due)

    def cancel(self) -> None:
        """Cancel the timer until it is set again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _due(self) -> None:
        self._handle = None
        self._ring()
