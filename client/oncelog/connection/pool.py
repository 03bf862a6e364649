"""One connection per broker, opened when needed and reopened with a backoff after a loss.

Several clients of one event loop can use the connections of one pool: each further client has a pool that borrows them
from the first (`ConnectionPool.lend`). Brokers respond to the requests of one connection in order, so clients whose
requests brokers answer late (Fetch, JoinGroup) must not share connections.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import fields
from typing import Any, Final, TypeVar

from oncelog.address import Address
from oncelog.backoff import backoff_s
from oncelog.cancelling import is_being_cancelled
from oncelog.cluster import Cluster
from oncelog.config import REBOOTSTRAP, ClientConfig
from oncelog.connection.security import Security, security_of
from oncelog.connection.transport import BrokerConnection, connect
from oncelog.errors import ClientClosed, ConfigError, ConnectionFailed, KafkaError
from oncelog_protocol.schema import Request

R = TypeVar("R")
T = TypeVar("T")

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S: Final = 1.0
HANGING_S: Final = 2.0
"""The client suspects that a broker hangs if its response is overdue by this many seconds, four times the default time
that a broker may hold a Fetch.
"""
MAX_ASKED_AT_ONCE: Final = 3
"""Maximum number of brokers that have the same request at the same time. The client sends the request to a further
broker when the earlier brokers do not respond.
"""


class _Link:
    """The state of one address: its connection or connection attempt, its number of consecutive failures, and the
    number of the last `ask_any` call that chose this address.
    """

    __slots__ = ("connecting", "connecting_since", "connection", "failures", "not_before", "turn")

    def __init__(self) -> None:
        self.connecting_since = 0.0
        self.connection: BrokerConnection | None = None
        self.connecting: asyncio.Task[BrokerConnection] | None = None
        self.failures = 0
        self.not_before = 0.0
        self.turn = 0

    @property
    def is_open(self) -> bool:
        return self.connection is not None and self.connection.is_open

    @property
    def is_doubtful(self) -> bool:
        """Whether requests should preferably go to another broker: the last connection attempt failed, an attempt is in
        progress, or the broker may hang.
        """
        return self.failures > 0 or self.connecting is not None or self.is_hanging

    @property
    def is_hanging(self) -> bool:
        return self.connection is not None and self.connection.silent_s >= HANGING_S


class ConnectionPool:
    """Connections by node id. `cluster` has the addresses; until the cluster is known, the bootstrap servers are
    used.

    A pool with a `lender` opens, uses and never closes the lender's connections. It has a cluster of its own, which
    starts with the brokers of the lender's cluster and no topics.
    """

    def __init__(
        self, config: ClientConfig, rng: random.Random | None = None, lender: ConnectionPool | None = None
    ) -> None:
        self._config = config
        self._bootstrap = config.bootstrap_addresses()
        self.security: Security = security_of(config) if lender is None else lender.security
        self._lender = lender
        self._links: dict[Address, _Link] = {} if lender is None else lender._links
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._is_closed = False
        self._turn = 0
        self.cluster: Cluster = Cluster() if lender is None else lender.cluster.without(lender.cluster.topics)

    def lend(self, config: ClientConfig, rng: random.Random | None = None) -> ConnectionPool:
        """Return a pool that uses the connections of this pool, for another client of the same event loop.

        The returned pool may be closed alone; when this pool is closed, the returned pool can open no connection.
        Raises the errors of `check_borrower`, and ClientClosed.
        """
        if self._is_closed:
            raise ClientClosed("the client whose connections are to be shared is closed")
        self.check_borrower(config)
        return ConnectionPool(config, rng, self)

    def check_borrower(self, config: ClientConfig) -> None:
        """Raise ConfigError if an option that all clients have differs from this pool's option, because connections
        have one client id, one login and one timeout.
        """
        if config.bootstrap_addresses() != self._bootstrap:
            raise ConfigError("bootstrap_servers must equal that of the client whose connections are shared")
        for each in fields(ClientConfig):
            name = each.name
            if name != "bootstrap_servers" and getattr(config, name) != getattr(self._config, name):
                raise ConfigError(f"{name} must equal that of the client whose connections are shared")

    def ready(self, node_id: int) -> BrokerConnection | None:
        """Return the open connection to a node, or None, for callers that must not wait."""
        broker = self.cluster.brokers.get(node_id)
        if broker is None:
            return None
        link = self._links.get(Address(broker.host, broker.port))
        return link.connection if link is not None and link.is_open else None

    def is_stuck(self, node_id: int, may_wait_s: float = 0.0) -> bool:
        """Return whether a node cannot be reached now or seems to hang: its response is overdue by more than HANGING_S
        plus `may_wait_s`, the time for which the broker may hold the request.
        """
        broker = self.cluster.brokers.get(node_id)
        link = None if broker is None else self._links.get(Address(broker.host, broker.port))
        if link is None:
            return False
        if link.connecting is not None and asyncio.get_running_loop().time() - link.connecting_since >= HANGING_S:
            return True
        silent_s = 0.0 if link.connection is None else link.connection.silent_s
        return link.failures > 0 or silent_s >= HANGING_S + may_wait_s

    @property
    def open_connections(self) -> int:
        """The number of connections that are open."""
        return sum(link.is_open for link in self._links.values())

    async def connection(self, node_id: int) -> BrokerConnection:
        """Return an open connection to a node; opening a connection waits for the backoff. Raises KafkaError."""
        broker = self.cluster.brokers.get(node_id)
        if broker is None:
            raise ConnectionFailed(f"node {node_id} is not among the brokers of the cluster")
        return await self._open(Address(broker.host, broker.port))

    async def any_connection(self, *, elsewhere: bool = False) -> BrokerConnection:
        """Return a connection to any broker: the least loaded open connection; if none is open, the first connection
        that can be opened. Known brokers are tried first, bootstrap servers after them (KIP-899), and hanging brokers
        last.

        Set `elsewhere` if the response of the last broker was of no use, so that another broker is preferred. The last
        broker may be cut off from the cluster and have outdated metadata. Raises ConnectionFailed if no connection can
        be opened.
        """
        return await self._first_of(self._candidates(elsewhere=elsewhere), self._open)

    async def ask_any(self, request: Request[R], *, elsewhere: bool = False) -> R:
        """Send a request that every broker can answer to any broker; the request must be repeatable. Raises KafkaError.

        The least loaded open connection is used, otherwise the first connection that can be opened. After HANGING_S
        without a response, the request is also sent to the next broker, and the first response is returned (E54).
        """

        async def ask(address: Address) -> R:
            return await (await self._open(address)).send(request)

        return await self._first_of(self._candidates(elsewhere=elsewhere), ask)

    async def _first_of(self, addresses: list[Address], attempt: Callable[[Address], Coroutine[Any, Any, T]]) -> T:
        """Call `attempt` for the addresses in order, and return the first result. The next address is tried when an
        attempt has failed, and also after HANGING_S without success. Raises ConnectionFailed if all attempts have
        failed.
        """
        errors: list[str] = []
        running: set[asyncio.Task[T]] = set()
        waiting = iter(addresses)
        address = next(waiting, None)
        try:
            while address is not None or running:
                if address is not None and len(running) < MAX_ASKED_AT_ONCE:
                    link = self._links.setdefault(address, _Link())
                    link.turn = self._next_turn()
                    task = asyncio.ensure_future(attempt(address))
                    task.add_done_callback(_retrieve)
                    running.add(task)
                    address = next(waiting, None)
                patience_s = None if address is None else HANGING_S
                done, running = await asyncio.wait(running, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    try:
                        return task.result()
                    except ClientClosed:
                        raise
                    except KafkaError as error:
                        if not error.retriable:
                            raise
                        errors.append(error.message)
        finally:
            for task in running:
                task.cancel()
        raise ConnectionFailed(f"no broker can be reached: {'; '.join(errors)}")

    def _next_turn(self) -> int:
        """Return a number that is higher than the `turn` of all links."""
        if self._lender is not None:
            return self._lender._next_turn()
        self._turn += 1
        return self._turn

    def start_over(self) -> None:
        """Discard the known brokers of the cluster, so that the next request goes to the bootstrap servers."""
        self.cluster = Cluster()

    def _candidates(self, *, elsewhere: bool) -> list[Address]:
        """Return the addresses at which any broker may be reached, the best first."""
        known = [Address(broker.host, broker.port) for broker in self.cluster.brokers.values()]
        self._rng.shuffle(known)
        if not known or self._config.metadata_recovery_strategy == REBOOTSTRAP:
            known += self._bootstrap
        fresh = _Link()

        def rank(address: Address) -> tuple[float, ...]:
            link = self._links.get(address, fresh)
            is_open = link.is_open and not link.is_hanging
            load = link.connection.in_flight if link.connection is not None else 0
            if elsewhere and (is_open or not link.is_doubtful):
                # Prefer connections without outstanding requests, behind which this request would wait if the broker
                # hangs.
                return (0, load > 0, link.turn, not is_open)
            if not elsewhere and is_open:
                return (0, load, link.turn)
            return (1, link.is_hanging, link.not_before)

        return sorted(dict.fromkeys(known), key=rank)

    async def send(self, node_id: int, request: Request[R], timeout_s: float | None = None) -> R:
        """Send a request to a node; connect first if needed. Raises KafkaError."""
        connection = self.ready(node_id) or await self.connection(node_id)
        return await connection.send(request, timeout_s=timeout_s)

    async def send_to_any(self, request: Request[R], *, elsewhere: bool = False) -> R:
        """Send a request to the broker that `any_connection` finds. Raises KafkaError."""
        return await (await self.any_connection(elsewhere=elsewhere)).send(request)

    async def finish(self) -> None:
        """Wait until brokers have read all requests that get no response (acks=0), then close the connections with such
        requests. A pool with a lender must not send such requests, so it does not wait, not even for requests of other
        clients that the connection holds back during a throttle time.
        """
        if self._lender is not None:
            return
        connections = [link.connection for link in self._links.values() if link.connection is not None]
        await asyncio.gather(*(connection.finish() for connection in connections))

    async def close(self) -> None:
        """Close all connections; requests in flight fail with ClientClosed. A pool with a lender closes no connection,
        and responses to its requests in flight still arrive.
        """
        self._is_closed = True
        if self._lender is not None:
            self._links = {}
            return
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
            await asyncio.gather(*late, return_exceptions=True)

    async def _open(self, address: Address) -> BrokerConnection:
        if self._is_closed:
            raise ClientClosed("the client is closed")
        if self._lender is not None:
            return await self._lender._open(address)
        link = self._links.setdefault(address, _Link())
        if link.connection is not None and link.is_open:
            return link.connection
        if link.connecting is None:
            link.connecting = asyncio.ensure_future(self._connect(address, link))
            link.connecting_since = asyncio.get_running_loop().time()
            link.connecting.add_done_callback(_retrieve)
        # Callers share the attempt; cancelling one caller must not cancel the attempt for the others.
        attempt = link.connecting
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if attempt.cancelled() and not is_being_cancelled() and self._is_closed:
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
                security=self.security,
            )
            link.connection = connection
            link.failures = 0
            # count a failure, so that a broker that closes each new connection is not reconnected in a busy loop
            link.not_before = loop.time() + self._backoff(1)
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
    """Mark the attempt's error as retrieved, because the event loop would otherwise log the error when no caller waits
    any more.
    """
    if not task.cancelled():
        task.exception()
