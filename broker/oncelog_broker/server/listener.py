"""Accepts connections on the configured listeners and sweeps the idle ones."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from oncelog_broker.config.listeners import Listener
from oncelog_broker.runtime.network import Listening, Network
from oncelog_broker.server.connection import BrokerConnection
from oncelog_broker.server.connections import Connections
from oncelog_broker.server.dispatch import Dispatcher

logger = logging.getLogger(__name__)

BACKLOG: Final = 1024
SWEEP_SECONDS: Final = 2.0
DRAIN_SECONDS: Final = 2.0
"""How long a stopping broker waits for written responses to leave."""


class Listeners:
    """All listening sockets of a broker and the connections they accepted."""

    def __init__(self, network: Network, dispatcher: Dispatcher, connections: Connections) -> None:
        self._network = network
        self._dispatcher = dispatcher
        self.connections = connections
        self._listening: list[Listening] = []

    async def listen(self, listener: Listener) -> int:
        """Bind `listener`; the real port. Raises OSError with a message that says what to do."""

        def factory() -> BrokerConnection:
            return BrokerConnection(self._dispatcher, self.connections, listener.name)

        try:
            listening = await self._network.listen(listener.host, listener.port, factory, backlog=BACKLOG)
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot listen on {listener.host}:{listener.port}: {error.strerror or error}. "
                "Is another broker running there? Set `listeners` to another port (0 takes any free one).",
            ) from error
        self._listening.append(listening)
        return listening.port

    async def start(self) -> None:
        """Begin to serve on everything that was bound."""
        for listening in self._listening:
            await listening.start()

    async def sweep(self) -> None:
        """Close idle and stalled connections; see BrokerConnection.sweep."""
        now = asyncio.get_running_loop().time()
        for connection in self.connections:
            connection.sweep(now)

    async def close(self) -> None:
        """Stop accepting, let written responses leave, then cut what is left."""
        for listening in self._listening:
            await listening.close()
        for connection in self.connections:
            connection.shut()
        await self.connections.drained(DRAIN_SECONDS)
        for connection in self.connections:
            connection.close("the broker stops")
