"""Records when each client made progress, and for how long it made none. Methods may be called from any thread."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import NamedTuple

WORTH_NOTING_SECONDS = 0.5


class Stall(NamedTuple):
    client: str
    began: float
    """The beginning of the stall, in seconds from the start of the run."""
    seconds: float

    @property
    def ended(self) -> float:
        return self.began + self.seconds


class Progress:
    def __init__(self) -> None:
        self.events: list[tuple[float, str]] = []
        """For each client, its events other than waiting (such as an aborted transaction) with their times."""
        self._started = time.monotonic()
        self._last: dict[str, float] = {}
        self._oldest: dict[str, float] = {}
        self.stalls: list[Stall] = []
        self.count: Counter[str] = Counter()
        self.mishaps: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Client -> its mishaps other than waiting: an aborted transaction, or a new client in place of a client that
        gave up.
        """

    @property
    def now(self) -> float:
        """Return the present time in seconds from the start of the run."""
        return time.monotonic() - self._started

    def note(self, client: str) -> None:
        """Record that the client made progress: a record was acknowledged, a transaction committed, or something
        read.
        """
        now = self.now
        last = self._last.get(client, now)
        if now - last > WORTH_NOTING_SECONDS:
            self.stalls.append(Stall(client, last, now - last))
        self._last[client] = now
        self.count[client] += 1

    def begins(self, client: str) -> None:
        """Expect the client to make progress from now on."""
        self._last[client] = self.now

    def over(self, client: str) -> None:
        """Stop expecting progress of the client."""
        self._last.pop(client, None)

    def mishap(self, client: str, what: str) -> None:
        self.mishaps[client][what] += 1
        self.events.append((self.now, f"{client}: {what}"))

    def waiting(self, longer_than: float) -> dict[str, float]:
        """Return, for each client that has waited for more than `longer_than` seconds, how many seconds it has
        waited.
        """
        now = self.now
        return {client: now - last for client, last in list(self._last.items()) if now - last > longer_than}

    @property
    def clients(self) -> list[str]:
        return list(self._last)
