"""Sends requests to other brokers.

There is one connection for each broker and purpose, so that slow requests of one purpose do not delay others. Requests
are pipelined on a connection, and responses arrive in the same order. A connection belongs to one registration of its
broker. The connection is closed as soon as the cluster image shows another broker epoch or address, or no longer
contains the broker.

No request is sent twice. If no response arrives, it is unknown whether the other broker handled the request, and the
caller decides what to do.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from oncelog.address import Address
from oncelog.backoff import backoff_s
from oncelog.cancelling import is_being_cancelled
from oncelog.errors import ConnectionFailed, KafkaError
from oncelog_broker.metadata.model.image import ClusterImage, ImageView
from oncelog_broker.runtime.host import Host
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.schema import Request

if TYPE_CHECKING:
    from oncelog.connection.security import Security
    from oncelog.connection.transport import BrokerConnection

logger = logging.getLogger(__name__)

R = TypeVar("R")

SETUP_SECONDS: Final = 10.0
"""Seconds within which a connection to one address of a broker must be made and its ApiVersions response must arrive
(Kafka's socket.connection.setup.timeout.ms).
"""
RECONNECT_BACKOFF_MS: Final = 50
"""The minimum delay between two attempts to connect, in ms; it doubles with each failure (Kafka's
reconnect.backoff.ms).
"""
RECONNECT_BACKOFF_MAX_MS: Final = 1000
"""The maximum delay between two attempts to connect, in ms (Kafka's reconnect.backoff.max.ms)."""


class Purpose(Enum):
    """The purpose of a connection; each purpose has its own connection."""

    FETCH = "fetch"
    CONTROL = "control"
    VERIFICATION = "verification"
    """AddPartitionsToTxn, for producers that write to this broker. This purpose has its own connection, so that
    verifications of transactions do not wait for transaction markers.
    """
    MARKERS = "markers"
    SHARE_STATE = "share state"
    """The purpose of a connection that sends requests to share coordinators."""
    FORWARDING = "forwarding"
    """Client requests that only the controller may execute, and that may take long."""


class PeerUnavailable(Exception):
    """The request got no response: the broker is not in the cluster image, could not be reached, closed the connection,
    timed out, or does not support the API. After this error it is unknown whether the broker handled the request.
    """

    def __init__(self, broker_id: int, reason: str, *, may_be_sent: bool = True) -> None:
        """`may_be_sent` is False only if the request was certainly not sent."""
        super().__init__(f"broker {broker_id}: {reason}")
        self.may_be_sent = may_be_sent


class Peers(Protocol):
    """Sends requests to the other brokers of the cluster."""

    async def send(self, broker_id: int, request: Request[R], *, purpose: Purpose, timeout: float) -> R:
        """Send a request and return the response, within `timeout` seconds, including the time to connect. Requests of
        one purpose to one broker arrive in the order of the calls. Raises PeerUnavailable.
        """


class _Place(NamedTuple):
    """One registration of a broker: its address and broker epoch."""

    address: Address
    epoch: int


class _Link:
    """The connection, or the attempt to connect, for one purpose and one registration of a broker."""

    __slots__ = ("connecting", "connection", "failures", "not_before", "place")

    def __init__(self, place: _Place) -> None:
        self.place = place
        self.connection: BrokerConnection | None = None
        self.connecting: asyncio.Task[BrokerConnection] | None = None
        self.failures = 0
        self.not_before = 0.0

    def drop(self, reason: str) -> None:
        """Close the connection, so that its outstanding requests fail."""
        if self.connecting is not None:
            self.connecting.cancel()
        if self.connection is not None:
            self.connection.close(ConnectionFailed(reason))


class BrokerPeers:
    """Implements `Peers` over the network. `listener` is the name of the inter-broker listener.

    Call `on_image` with each new cluster image, and close this object before the tasks of its host are cancelled.
    """

    def __init__(
        self,
        node_id: int,
        listener: str,
        metadata: ImageView,
        host: Host,
        rng: random.Random | None = None,
        security: Callable[[], Security] | None = None,
    ) -> None:
        self._security = security
        self._node_id = node_id
        self._listener = listener
        self._metadata = metadata
        self._network = host.network
        self._tasks = host.tasks
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._links: dict[tuple[int, Purpose], _Link] = {}
        self._is_closed = False

    async def send(self, broker_id: int, request: Request[R], *, purpose: Purpose, timeout: float) -> R:
        """Implements `Peers.send`."""
        assert broker_id != self._node_id, "a broker sends itself no requests"
        connection: BrokerConnection | None = None
        may_be_sent = False
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self._connection(broker_id, purpose)
                assert connection.versions is not None
                version = connection.versions.highest(type(request))
                may_be_sent = True
                return await connection.start(request, version, deadline - asyncio.get_running_loop().time())
        except TimeoutError:
            if connection is not None:
                connection.check_deadlines()  # close the connection: responses come in order
            raise PeerUnavailable(broker_id, f"no response within {timeout:g} s", may_be_sent=may_be_sent) from None
        except KafkaError as error:
            raise PeerUnavailable(broker_id, error.message, may_be_sent=may_be_sent) from error

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        """Close the connections to brokers that have left or registered again. An image in which only topics have
        changed costs nothing, however many brokers the cluster has.
        """
        if new.brokers is old.brokers:
            return
        for key, link in list(self._links.items()):
            if self._place(new, key[0]) != link.place:
                del self._links[key]
                link.drop(f"{link.place.address}: the broker left, or registered again")

    def close(self) -> None:
        """Close all connections: outstanding requests fail, and no further request can be sent."""
        self._is_closed = True
        links, self._links = self._links, {}
        for link in links.values():
            link.drop("this broker is stopping")

    def _place(self, image: ClusterImage, broker_id: int) -> _Place | None:
        broker = image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        if broker is None or endpoint is None:
            return None
        return _Place(Address(endpoint.host, endpoint.port), broker.epoch)

    async def _connection(self, broker_id: int, purpose: Purpose) -> BrokerConnection:
        """Return an open connection, after waiting for the reconnect back-off if needed. Raises PeerUnavailable,
        KafkaError.
        """
        if self._is_closed:
            raise PeerUnavailable(broker_id, "this broker is stopping", may_be_sent=False)
        place = self._place(self._metadata.image, broker_id)
        if place is None:
            raise PeerUnavailable(broker_id, f"not registered with a listener {self._listener}", may_be_sent=False)
        link = self._links.get((broker_id, purpose))
        if link is None or link.place != place:
            if link is not None:
                link.drop(f"{link.place.address}: the broker registered again")
            link = self._links[broker_id, purpose] = _Link(place)
        if link.connection is not None and link.connection.is_open:
            return link.connection
        if link.connecting is None:
            name = f"connect to broker {broker_id} for {purpose.value}"
            link.connecting = self._tasks.spawn(name, self._connect(link, broker_id, purpose), is_awaited=True)
            link.connecting.add_done_callback(_retrieve)
        attempt = link.connecting
        try:
            # Shield the attempt to connect: several callers share it, and the cancellation of one caller must not
            # cancel the attempt.
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if attempt.cancelled() and not is_being_cancelled():
                reason = "the broker left or registered again, or this broker stops"
                raise PeerUnavailable(broker_id, reason, may_be_sent=False) from None
            raise

    async def _connect(self, link: _Link, broker_id: int, purpose: Purpose) -> BrokerConnection:
        from oncelog.connection.security import UNSECURED  # imported late: a lone broker needs no client
        from oncelog.connection.transport import connect

        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(max(0.0, link.not_before - loop.time()))
            connection = await connect(
                link.place.address,
                client_id=f"broker-{self._node_id}-{purpose.value}",
                request_timeout_s=SETUP_SECONDS,
                setup_timeout_s=SETUP_SECONDS,
                open_connection=self._network.connect,
                security=UNSECURED if self._security is None else self._security(),
            )
        except KafkaError as error:
            link.failures += 1
            link.not_before = loop.time() + self._backoff(link.failures)
            level = logging.WARNING if link.failures == 1 else logging.DEBUG
            logger.log(level, "broker not reached", extra={"broker": broker_id, "reason": error.message})
            raise
        else:
            link.connection, link.failures = connection, 0
            # without this wait, attempts would loop fast with a broker that closes each connection immediately
            link.not_before = loop.time() + self._backoff(1)
            return connection
        finally:
            link.connecting = None

    def _backoff(self, failures: int) -> float:
        return backoff_s(failures, RECONNECT_BACKOFF_MS, RECONNECT_BACKOFF_MAX_MS, self._rng)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Mark the error of the attempt as retrieved, to avoid a warning of asyncio if all waiting callers were
    cancelled.
    """
    if not task.cancelled():
        task.exception()
