"""Accepts connections on the configured listeners and closes idle connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Final

from oncelog_broker.config.listeners import Listener
from oncelog_broker.runtime.host import Host
from oncelog_broker.runtime.network import Listening
from oncelog_broker.security.listener_security import ListenerSecurity
from oncelog_broker.security.principal import ANONYMOUS, Principal
from oncelog_broker.server.dispatch.dispatcher import Dispatcher
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.connections import Connections
from oncelog_broker.server.net.login_gate import LoginGate
from oncelog_broker.server.net.tls_handshakes import TlsHandshakes

logger = logging.getLogger(__name__)

BACKLOG: Final = 1024
SWEPT_PER_TURN: Final = 50
"""Maximum number of connections that one iteration of the loop checks or closes."""
SWEEP_SECONDS: Final = 2.0
DRAIN_SECONDS: Final = 2.0
"""The maximum number of seconds that a stopping broker waits until the buffered responses are sent."""


class Listeners:
    """All listening sockets of a broker and the connections that they have accepted."""

    def __init__(self, host: Host, connections: Connections) -> None:
        self._network = host.network
        self._clock = host.clock
        self._handshakes = TlsHandshakes()
        self._dispatcher: Dispatcher | None = None
        self.connections = connections
        self._listening: list[Listening] = []

    async def listen(self, listener: Listener, security: ListenerSecurity, *, is_shared: bool = False) -> int:
        """Bind `listener`; returns the port that the system assigned. If `is_shared` is True, other workers of this
        machine may listen on the same port. Raises OSError with a message that says what to do.
        """

        def connection(principal: Principal = ANONYMOUS) -> BrokerConnection:
            assert self._dispatcher is not None, "nothing is accepted before start"
            exchange, gate = security.exchange(), None
            if exchange is not None:
                gate = LoginGate(
                    exchange, self._clock, listener.name, security.max_receive_bytes, security.failed_delay_seconds
                )
            return BrokerConnection(
                self._dispatcher.handle,
                self.connections,
                listener.name,
                principal,
                gate,
                is_encrypted=security.tls is not None,
            )

        factory: Callable[[], asyncio.BufferedProtocol] = connection
        if security.tls is not None:
            from oncelog_broker.server.net.tls_transport import TlsTransport

            factory = partial(TlsTransport, security, self._handshakes, self.connections, connection)
        try:
            rates = self.connections.rates
            pace = None if rates is None else rates.pace(listener.name)
            listening = await self._network.listen(
                listener.host, listener.port, factory, backlog=BACKLOG, pace=pace, is_shared=is_shared
            )
        except OSError as error:
            raise _cannot_listen(listener, error) from error
        self._listening.append(listening)
        return listening.port

    async def start(self, dispatcher: Dispatcher) -> None:
        """Start serving on all bound sockets; `dispatcher` receives the requests."""
        self._dispatcher = dispatcher
        for listening in self._listening:
            await listening.start()

    async def sweep(self) -> None:
        """Close idle and stalled connections, and free the unused memory of the other connections."""
        loop = asyncio.get_running_loop()
        for number, connection in enumerate(self.connections, 1):
            connection.sweep(loop.time())
            if number % SWEPT_PER_TURN == 0:
                await asyncio.sleep(0)

    async def close(self) -> None:
        """Stop accepting, wait until buffered responses are sent, then close the remaining connections. Does nothing if
        the listeners are already closed.
        """
        while self._listening:
            await self._listening.pop().close()
        if self.connections.rates is not None:
            self.connections.rates.close()
        for connection in self.connections:
            connection.shut()
        await self.connections.drained(DRAIN_SECONDS)
        for connection in self.connections:
            connection.close("the broker stops")


def _cannot_listen(listener: Listener, error: OSError) -> OSError:
    """Return an OSError with the same errno, whose message says what to do. The message that asyncio makes repeats the
    address, so the system's message is used instead.
    """
    why, what_to_do = error.strerror or str(error), f"Check {listener.host!r} in `listeners`."
    if error.errno == errno.EADDRINUSE:
        why = os.strerror(errno.EADDRINUSE).lower()
        what_to_do = "Is another broker using that port? Set `listeners` to another port (0 takes any free one)."
    elif error.errno == errno.EACCES:
        what_to_do = "Ports below 1024 are often reserved: set `listeners` to a higher one (0 takes any free one)."
    return OSError(f"cannot listen on {listener.host}:{listener.port}: {why}. {what_to_do}")
