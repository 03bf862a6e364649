"""Manages the connections to the coordinator of a group.

Brokers respond in order on each connection, and they hold Fetch and JoinGroup requests for a while, so a heartbeat
behind such a request would be delayed. Heartbeats and commits therefore have their own connection, and each rebalance
uses another connection.

Rule: if the coordinator no longer exists, no request waits for it longer than twice request_timeout_ms. All requests
except JoinGroup have request_timeout_ms as their timeout. The coordinator may hold JoinGroup until the rebalance
timeout, and the connection to a machine that lost its power stays open. While JoinGroup waits, the client therefore
checks every request_timeout_ms that the coordinator still exists.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from oncelog.address import Address
from oncelog.backoff import backoff_s
from oncelog.cluster import Broker, Cluster
from oncelog.config import ClientConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.connection.transport import BrokerConnection, connect
from oncelog.connection.versions import LAST_TRY, api_versions_request
from oncelog.errors import ConnectionFailed, KafkaError, RequestTimedOut
from oncelog.metadata.coordinators import find_coordinator
from oncelog.metadata.metadata import Metadata
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.schema import Request

R = TypeVar("R")

logger = logging.getLogger(__name__)


class CoordinatorConnection:
    """Looks up the coordinator before the first request, and again after a call of `lost`."""

    def __init__(self, group_id: str, metadata: Metadata, config: ClientConfig) -> None:
        self._group_id = group_id
        self._metadata = metadata
        self._config = config
        self._pool = ConnectionPool(config)
        self._coordinator: Broker | None = None
        self._was_lost = False
        self._finding = asyncio.Lock()
        self._rng = random.Random()  # noqa: S311 - jitter, not a secret

    async def send(self, request: Request[R], timeout_s: float | None = None) -> R:
        """Send a request to the coordinator; after a connection error, look up the coordinator again. Raises
        KafkaError."""
        coordinator = await self._find()
        try:
            return await self._pool.send(coordinator.node_id, request, timeout_s)
        except (ConnectionFailed, RequestTimedOut) as error:
            self.lost(error.message)
            raise

    @asynccontextmanager
    async def for_joining(self) -> AsyncIterator[BrokerConnection]:
        """Context manager: a connection for requests that wait for other members. Raises the errors of `send`."""
        coordinator = await self._find()
        connection: BrokerConnection | None = None
        try:
            connection = await connect(
                Address(coordinator.host, coordinator.port),
                client_id=self._config.client_id,
                request_timeout_s=self._config.request_timeout_ms / 1000,
                setup_timeout_s=self._config.socket_connection_setup_timeout_ms / 1000,
                security=self._pool.security,
            )
            yield connection
        except (ConnectionFailed, RequestTimedOut) as error:
            self.lost(error.message)
            raise
        finally:
            if connection is not None:
                connection.close()

    async def hold(self, connection: BrokerConnection, request: Request[R], timeout_s: float) -> R:
        """Return the response to a request that the coordinator may hold for `timeout_s`, sent on a connection that
        `for_joining` has returned.

        Raises KafkaError, and ConnectionFailed as soon as another broker is the coordinator or the coordinator has
        restarted.
        """
        answer = connection.start(request, timeout_s=timeout_s)
        gone = asyncio.ensure_future(self._until_gone(connection))
        try:
            both: list[asyncio.Future[Any]] = [answer, gone]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if not answer.done():
            raise ConnectionFailed(f"{connection.address}: not the coordinator of group {self._group_id} any more")
        return answer.result()

    async def _until_gone(self, connection: BrokerConnection) -> None:
        """Return when another broker is the coordinator. If the coordinator's machine has restarted, it resets the
        connection as soon as a packet arrives. Therefore this method also sends ApiVersions requests on the connection;
        a live coordinator responds to them after the request that it holds.
        """
        while True:
            await asyncio.sleep(self._config.request_timeout_ms / 1000)
            with suppress(KafkaError):  # keep waiting, because no broker names another coordinator
                connection.start(api_versions_request(), LAST_TRY)
                found = await find_coordinator(self._pool, self._group_id, CoordinatorType.GROUP, elsewhere=True)
                if Address(found.host, found.port) != connection.address:
                    return

    def lost(self, reason: str) -> None:
        """Record that the coordinator has moved or cannot be reached."""
        if self._coordinator is not None:
            logger.info("group %s: looking for the coordinator again: %s", self._group_id, reason)
        self._coordinator = None
        self._was_lost = True

    async def backoff(self, failures: int) -> None:
        """Wait before the next attempt."""
        config = self._config
        await asyncio.sleep(backoff_s(failures, config.retry_backoff_ms, config.retry_backoff_max_ms, self._rng))

    async def close(self) -> None:
        await self._pool.close()

    async def _find(self) -> Broker:
        async with self._finding:
            if self._coordinator is None:
                self._pool.cluster = Cluster(brokers=self._metadata.cluster.brokers)
                # The broker that named the lost coordinator may not know the new coordinator yet, so query another
                # broker.
                self._coordinator = await find_coordinator(
                    self._pool, self._group_id, CoordinatorType.GROUP, elsewhere=self._was_lost
                )
                self._was_lost = False
            return self._coordinator
