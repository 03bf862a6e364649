"""Who has a turn at a TLS handshake: each step of one costs the loop about a millisecond.

One step is taken in a turn of the loop, however many clients there are. At most MAX_AT_ONCE handshakes are under way;
the others, whose first bytes are kept, wait. The newest goes first: where more come than can be served, whoever came
long ago has gone, or will have, before it would be its turn. A client that has begun and does not go on gives up its
place when others want it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

MAX_AT_ONCE: Final = 256
"""Handshakes under way: some 50 KB each."""
LEFT_SECONDS: Final = 1.0
"""One that is under way for so long makes room for another."""
HANDSHAKE_SECONDS: Final = 10.0
"""From the connection to the end of its handshake."""


class Handshake(Protocol):
    """One client's."""

    def take_step(self) -> None:
        """Handle what has come."""

    def close(self, reason: str) -> None:
        """Give it up."""


class Handshakes:
    """Those of one broker."""

    def __init__(self) -> None:
        self._under_way: dict[Handshake, float] = {}
        """With the loop's time when each began, oldest first."""
        self._waiting: dict[Handshake, None] = {}
        self._ready: deque[Handshake] = deque()
        self._next_turn: asyncio.Handle | None = None
        self._is_soon = False

    def __len__(self) -> int:
        return len(self._under_way)

    def has_input(self, handshake: Handshake) -> None:
        """Something has come for it: it wants a turn."""
        if handshake in self._under_way:
            self._ready.append(handshake)
        else:
            self._waiting[handshake] = None
        self._have_turn()

    def leave(self, handshake: Handshake) -> None:
        """It is done, or its client has gone. Harmless for one that never was here."""
        self._under_way.pop(handshake, None)
        self._waiting.pop(handshake, None)
        if self._waiting:
            self._have_turn()

    def _have_turn(self, delay: float = 0.0) -> None:
        if self._next_turn is not None and (delay or self._is_soon):
            return
        if self._next_turn is not None:
            self._next_turn.cancel()  # it was to be later
        loop = asyncio.get_running_loop()
        self._is_soon = not delay
        self._next_turn = loop.call_later(delay, self._turn) if delay else loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._next_turn = None
        try:
            self._take_one_step()
        finally:
            if self._ready:
                self._have_turn()
            elif self._waiting:
                self._have_turn(self._seconds_until_room())

    def _take_one_step(self) -> None:
        while self._ready:
            handshake = self._ready.popleft()
            if handshake in self._under_way:
                handshake.take_step()
                return
        self._begin_one()

    def _begin_one(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._waiting or self._seconds_until_room() > 0:
            return
        if len(self._under_way) >= MAX_AT_ONCE:
            oldest = next(iter(self._under_way))
            del self._under_way[oldest]
            oldest.close("its TLS handshake does not go on while others wait")
        newest, _ = self._waiting.popitem()
        self._under_way[newest] = now
        newest.take_step()

    def _seconds_until_room(self) -> float:
        """Until another handshake may begin."""
        if len(self._under_way) < MAX_AT_ONCE:
            return 0.0
        began = next(iter(self._under_way.values()))
        return max(0.0, began + LEFT_SECONDS - asyncio.get_running_loop().time())
