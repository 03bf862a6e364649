"""One timer that can be set to ring earlier: what components use which wait for the earliest of many moments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timer:
    """Calls `ring` once, at the earliest of the moments it was set to since it rang last.

    The moment is kept here, since uvloop's handles for moments that have come do not tell theirs.
    """

    __slots__ = ("_handle", "_loop", "_ring", "_when")

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle | None = None
        self._when = 0.0

    def set(self, when: float) -> None:
        """Ring at `when` (loop time) or before."""
        if self._handle is not None:
            if self._when <= when:
                return
            self._handle.cancel()
        self._when = when
        self._handle = self._loop.call_at(when, self._due)

    def cancel(self) -> None:
        """Do not ring, until it is set again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _due(self) -> None:
        self._handle = None
        self._ring()
