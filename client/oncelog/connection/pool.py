"""One connection per broker, made when it is needed and again when it was lost, not faster than the backoff allows."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any, Final, TypeVar

from oncelog.backoff import backoff_s
from oncelog.cluster import Cluster
from oncelog.config import ClientConfig
from oncelog.connection.address import Address
from oncelog.connection.transport import BrokerConnection, connect
from oncelog.errors import ClientClosed, ConnectionFailed, KafkaError
from oncelog_protocol.schema import Request

R = TypeVar("R")

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S: Final = 1.0


class _Link:
    """What is known of one address: the connection or the attempt at one, and how often it failed in a row."""

    __slots__ = ("connecting", "connection", "failures", "not_before")

    def __init__(self) -> None:
        self.connection: BrokerConnection | None = None
        self.connecting: asyncio.Task[BrokerConnection] | None = None
        self.failures = 0
        self.not_before = 0.0


class ConnectionPool:
    """Connections by node id. `cluster` says where the nodes are; the bootstrap servers serve until it does."""

    def __init__(self, config: ClientConfig, rng: random.Random | None = None) -> None:
        self._config = config
        self._bootstrap = config.bootstrap_addresses()
        self._links: dict[Address, _Link] = {}
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._is_closed = False
        self.cluster = Cluster()

    def ready(self, node_id: int) -> BrokerConnection | None:
        """The open connection to a node, if there is one: for callers that must not wait."""
        broker = self.cluster.brokers.get(node_id)
        if broker is None:
            return None
        link = self._links.get(Address(broker.host, broker.port))
        if link is None or link.connection is None or not link.connection.is_open:
            return None
        return link.connection

    async def connection(self, node_id: int) -> BrokerConnection:
        """An open connection to a node, after the backoff. Raises KafkaError."""
        broker = self.cluster.brokers.get(node_id)
        if broker is None:
            raise ConnectionFailed(f"node {node_id} is not among the brokers of the cluster")
        return await self._open(Address(broker.host, broker.port))

    async def any_connection(self) -> BrokerConnection:
        """A connection to any broker: an open one, else the first that can be made, bootstrap servers last.

        Raises ConnectionFailed when none can be made.
        """
        for link in self._links.values():
            if link.connection is not None and link.connection.is_open:
                return link.connection
        known = [Address(broker.host, broker.port) for broker in self.cluster.brokers.values()]
        self._rng.shuffle(known)
        candidates = list(dict.fromkeys([*known, *self._bootstrap]))
        candidates.sort(key=lambda address: self._links[address].not_before if address in self._links else 0.0)
        errors = []
        for address in candidates:
            try:
                return await self._open(address)
            except ClientClosed:
                raise
            except KafkaError as error:
                if not error.retriable:
                    raise
                errors.append(error.message)
        raise ConnectionFailed(f"no broker can be reached: {'; '.join(errors)}")

    async def send(self, node_id: int, request: Request[R], timeout_s: float | None = None) -> R:
        """Send to a node, connecting first where needed. Raises KafkaError."""
        connection = self.ready(node_id) or await self.connection(node_id)
        return await connection.send(request, timeout_s=timeout_s)

    async def send_to_any(self, request: Request[R]) -> R:
        """Send to whichever broker answers first. Raises KafkaError."""
        return await (await self.any_connection()).send(request)

    async def finish(self) -> None:
        """Until brokers have read what they do not answer (acks=0). Those connections are closed then."""
        connections = [link.connection for link in self._links.values() if link.connection is not None]
        await asyncio.gather(*(connection.finish() for connection in connections))

    async def close(self) -> None:
        """Close all connections; what is in flight fails with ClientClosed."""
        self._is_closed = True
        links, self._links = list(self._links.values()), {}
        attempts = [link.connecting for link in links if link.connecting is not None]
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        connections = [link.connection for link in links if link.connection is not None]
        for connection in connections:
            connection.close(ClientClosed("the client was closed"))
        closing = [asyncio.ensure_future(connection.wait_closed()) for connection in connections]
        if closing:
            _, late = await asyncio.wait(closing, timeout=CLOSE_TIMEOUT_S)
            for waiting in late:
                waiting.cancel()

    async def _open(self, address: Address) -> BrokerConnection:
        if self._is_closed:
            raise ClientClosed("the client is closed")
        link = self._links.setdefault(address, _Link())
        if link.connection is not None and link.connection.is_open:
            return link.connection
        if link.connecting is None:
            link.connecting = asyncio.ensure_future(self._connect(address, link))
            link.connecting.add_done_callback(_retrieve)
        # Shielded: callers share the attempt, and one who gives up must not take it from the others.
        attempt = link.connecting
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if attempt.cancelled() and self._is_closed:
                raise ClientClosed("the client was closed") from None
            raise

    async def _connect(self, address: Address, link: _Link) -> BrokerConnection:
        config, loop = self._config, asyncio.get_running_loop()
        try:
            await asyncio.sleep(max(0.0, link.not_before - loop.time()))
            connection = await connect(
                address,
                client_id=config.client_id,
                request_timeout_s=config.request_timeout_ms / 1000,
                setup_timeout_s=config.socket_connection_setup_timeout_ms / 1000,
                on_lost=self._lost(link),
            )
            link.connection = connection
            link.failures = 0
            link.not_before = loop.time() + self._backoff(1)  # a broker that hangs up at once is not called in a loop
            return connection
        except KafkaError as error:
            link.failures += 1
            link.not_before = loop.time() + self._backoff(link.failures)
            logger.info("%s (attempt %d)", error.message, link.failures)
            raise
        finally:
            link.connecting = None

    def _lost(self, link: _Link) -> Callable[[BrokerConnection], None]:
        def lost(connection: BrokerConnection) -> None:
            if link.connection is connection:
                link.connection = None

        return lost

    def _backoff(self, failures: int) -> float:
        return backoff_s(failures, self._config.reconnect_backoff_ms, self._config.reconnect_backoff_max_ms, self._rng)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Mark the error of an attempt as seen: those who waited for it have it, and there may be none any more."""
    if not task.cancelled():
        task.exception()
