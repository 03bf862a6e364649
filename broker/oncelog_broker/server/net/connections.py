"""All open connections of a broker: admits them within the limits, and counts them out again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Protocol

from oncelog_broker.runtime.loop_budget import LoopBudget
from oncelog_broker.runtime.round_robin import RoundRobin
from oncelog_broker.server.net.connection_rates import ConnectionRates
from oncelog_broker.server.net.limits import Limits

logger = logging.getLogger(__name__)


class OpenConnection(Protocol):
    """The interface of a connection to the code that handles all connections together."""

    @property
    def listener(self) -> str:
        """The name of its listener."""

    def sweep(self, now: float) -> None: ...

    def shut(self) -> None: ...

    def close(self, reason: str) -> None: ...


class Connections:
    """Invariant: `limits` counts exactly these connections."""

    def __init__(self, limits: Limits, budget: LoopBudget, rates: ConnectionRates | None = None) -> None:
        """`budget`: the time that they may spend together in one turn of the loop, beyond one request each. `rates`:
        how fast they may be made."""
        self.limits = limits
        self.rates = rates
        self.budget = budget
        self.scheduler = RoundRobin(budget)
        """Connections with large answers: in one slice, one portion of an answer is written."""
        self.large_requests = RoundRobin(budget)
        """Connections with a large request that this turn of the loop had no time for: a slice is one request."""
        self._open: dict[OpenConnection, None] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def refuse_if_over_rate(self, transport: asyncio.Transport, host: str, listener: str) -> bool:
        """Refuse a connection beyond the rate of its address, and return whether it was refused. To be called once for
        each accepted connection."""
        if self.rates is None:
            return False
        self.rates.count(listener)
        if not self.rates.refuse_if_over_rate(transport, host):
            return False
        logger.warning("connection refused", extra={"client": host, "reason": "connection_creation_rate reached"})
        return True

    def admit(self, connection: OpenConnection, host: str) -> str | None:
        """Admit the connection. Returns the limit that forbids it, or None."""
        refused = self.limits.admit(host)
        if refused is None:
            self._open[connection] = None
            self._empty.clear()
        return refused

    def release(self, connection: OpenConnection, host: str) -> None:
        """Forget a connection that is closed; does nothing for one that was not admitted."""
        if connection in self._open:
            del self._open[connection]
            self.limits.release(host)
            if not self._open:
                self._empty.set()

    async def drained(self, timeout: float) -> None:
        """Return when all connections are closed, at the latest after `timeout` seconds."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout)
        except TimeoutError:
            pass

    def __iter__(self) -> Iterator[OpenConnection]:
        return iter(list(self._open))

    def __len__(self) -> int:
        return len(self._open)
