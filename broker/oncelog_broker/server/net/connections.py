"""All open connections of a broker: admits connections within the limits, and releases closed connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from oncelog_broker.runtime.loop_budget import LoopBudget
from oncelog_broker.runtime.round_robin import RoundRobin
from oncelog_broker.server.net.connection_rates import ConnectionRates
from oncelog_broker.server.net.limits import Limits

logger = logging.getLogger(__name__)


class OpenConnection(Protocol):
    """The methods that code for all open connections, such as the listener, may call on each connection."""

    @property
    def listener(self) -> str:
        """The name of the listener that accepted this connection."""

    def sweep(self, now: float) -> None: ...

    def shut(self) -> None: ...

    def close(self, reason: str) -> None: ...


class Departure:
    """The end of a connection whose client has disconnected, when this iteration of the event loop has spent its
    budget, as when a client closes thousands of connections at once.
    """

    __slots__ = ("_end",)

    def __init__(self, end: Callable[[], None]) -> None:
        """`end`: frees the connection's buffers and counts the connection out."""
        self._end = end

    def take_slice(self) -> bool:
        self._end()
        return False


class Connections:
    """All open connections; invariant: `limits` counts exactly these connections."""

    def __init__(self, limits: Limits, budget: LoopBudget, rates: ConnectionRates | None = None) -> None:
        """`budget`: the time that one iteration of the loop may spend on further requests, for all connections
        together; the first request of each connection is not limited by the budget. `rates`: limits the rate of new
        connections; None means no limit.
        """
        self.limits = limits
        self.rates = rates
        self.budget = budget
        self.scheduler = RoundRobin(budget)
        """Schedules connections with large responses: one slice writes one portion of a response."""
        self.large_requests = RoundRobin(budget)
        """Schedules connections with a large request that did not fit into this iteration of the loop: one slice
        handles one request.
        """
        self.departures = RoundRobin(budget)
        """Schedules the ends of connections that did not fit into this iteration of the loop: one slice ends one
        connection.
        """
        self._open: dict[OpenConnection, None] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def refuse_if_over_rate(self, transport: asyncio.Transport, host: str, listener: str) -> bool:
        """Refuse a connection beyond the rate of its address; returns whether the connection was refused. The caller
        calls this method once for each accepted connection.
        """
        if self.rates is None:
            return False
        self.rates.count(listener)
        if not self.rates.refuse_if_over_rate(transport, host):
            return False
        logger.warning("connection refused", extra={"client": host, "reason": "connection_creation_rate reached"})
        return True

    def admit(self, connection: OpenConnection, host: str) -> str | None:
        """Admit the connection. Returns a description of the limit that forbids the connection, or None."""
        refused = self.limits.admit(host)
        if refused is None:
            self._open[connection] = None
            self._empty.clear()
        return refused

    def release(self, connection: OpenConnection, host: str) -> None:
        """Remove a closed connection; does nothing for a connection that was not admitted."""
        if connection in self._open:
            del self._open[connection]
            self.limits.release(host)
            if not self._open:
                self._empty.set()

    async def drained(self, timeout: float) -> None:
        """Return when all connections are closed, but at the latest after `timeout` seconds."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout)
        except TimeoutError:
            pass

    def __iter__(self) -> Iterator[OpenConnection]:
        return iter(list(self._open))

    def __len__(self) -> int:
        return len(self._open)
