"""The socket of a `protocol.ConnectionProtocol`: one connection to one broker.

Requests are written immediately and responses complete futures, without a task, lock or timer per request. Responses
come in order, so one timer per connection is enough: it is set to the deadline of the oldest request. When that request
times out, the connection is closed, because later requests could not get a response either.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from ipaddress import ip_address
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar, cast

from oncelog.address import Address
from oncelog.connection.login import log_in
from oncelog.connection.protocol import ConnectionProtocol
from oncelog.connection.security import UNSECURED, SaslLogin, Security
from oncelog.connection.versions import FIRST_TRY, LAST_TRY, VersionTable, api_versions_request, next_try
from oncelog.errors import AuthenticationFailed, ConnectionFailed, ErrorCode, KafkaError, RequestTimedOut
from oncelog.timer import Timer
from oncelog_protocol.errors import UnencodableMessage
from oncelog_protocol.records.batch import Buffer
from oncelog_protocol.schema import Request

R = TypeVar("R")
OpenConnection = Callable[..., Awaitable[Any]]
"""Opens a connection, with the arguments of `loop.create_connection`: a protocol factory, host and port, and `ssl` and
`server_hostname` for TLS. Raises OSError."""

logger = logging.getLogger(__name__)

MAX_THROTTLE_S: Final = 120.0
"""The longest throttle time in seconds that the client respects. If a broker requires a longer pause, it sends a
throttle time again in its next response.
"""
LOGIN_AGAIN_FRACTION: Final = 0.85
"""Fraction of a login's lifetime after which the client authenticates again; it is the smallest fraction that the Java
client uses.
"""
WRITELINES_COPIES: Final[bool] = sys.version_info < (3, 12)
"""Whether `writelines` of asyncio copies all parts into one buffer."""
COPIED_BYTES: Final = 64 * 1024
"""Parts of a request below this size are copied into one buffer before they are written, if the transport would copy
all parts.
"""
IPV6_PLACE: Final = 4
"""the socket address of IPv6: host, port, flow info, scope id"""


class _Held(NamedTuple):
    """A request whose write is delayed because its broker throttles the client or because a login is in progress."""

    deadline: float
    """Time at which to write, in seconds of the loop's clock."""
    timeout_s: float
    """Timeout of the request in seconds, counted from its write."""
    future: asyncio.Future[Any]
    write: Callable[[float], None]

    def write_late(self, now: float) -> None:
        """Write the request from a timer, unless its caller was cancelled; an error goes to the request's future,
        because a timer has no caller.
        """
        if self.future.cancelled():
            return
        try:
            self.write(now + self.timeout_s)
        except KafkaError as error:
            self._fail(error)

    def give_up(self, address: Address) -> None:
        self._fail(RequestTimedOut(ErrorCode.REQUEST_TIMED_OUT, f"{address}: sending to the broker timed out"))

    def _fail(self, error: KafkaError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # mark the error as retrieved: otherwise the loop logs it if no caller waits


class BrokerConnection(asyncio.BufferedProtocol):
    """Create a connection with `connect`. Invariant: every future in flight gets a result or an error, at the latest
    when the connection closes.
    """

    def __init__(
        self,
        address: Address,
        client_id: str,
        request_timeout_s: float,
        on_lost: Callable[[BrokerConnection], None] | None = None,
    ) -> None:
        self.address = address
        self.versions: VersionTable | None = None
        self._loop = asyncio.get_running_loop()
        self._protocol: ConnectionProtocol[asyncio.Future[Any]] = ConnectionProtocol(client_id)
        self._request_timeout_s = request_timeout_s
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._unwritten: list[tuple[float, asyncio.Future[None]]] = []
        """Futures of requests without a response whose bytes are not all written to the socket yet; each future has a
        deadline for the write.
        """
        self._has_unanswered = False
        self._is_finishing = False
        self._heard_at = 0.0
        self._timer = Timer(self.check_deadlines)
        self._held: list[_Held] | None = None
        """Requests that are held back until re-authentication (KIP-368) is done or a throttle time has passed
        (KIP-219); meanwhile no other request may be sent. None means that nothing is held back.
        """
        self._throttled_until = 0.0
        self._end_of_throttling: asyncio.TimerHandle | None = None
        self._login_again: asyncio.TimerHandle | None = None
        self._logging_in: asyncio.Task[None] | None = None
        self._error: KafkaError | None = None
        self._lost: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self._error is None and not self._is_finishing

    @property
    def in_flight(self) -> int:
        """Number of requests that have no response yet."""
        return len(self._protocol.in_flight)

    @property
    def silent_s(self) -> float:
        """Seconds since the broker last sent anything while a response is outstanding; 0 if none is outstanding."""
        return self._loop.time() - self._heard_at if self._protocol.in_flight else 0.0

    def start(
        self, request: Request[R], version: int | None = None, timeout_s: float | None = None
    ) -> asyncio.Future[R]:
        """Write `request`; the result of the returned future is the response.

        Raises only KafkaErrors: UnsupportedVersion, ConnectionFailed if the connection is not open, and INVALID_REQUEST
        for a request that cannot be encoded. The future fails with ConnectionFailed or RequestTimedOut; an error of the
        event loop or the transport counts as a lost connection (E55). Cancelling the future does not cancel the
        request, unless the request is still held back; the response is ignored.
        """
        deadline = self._loop.time() + (self._request_timeout_s if timeout_s is None else timeout_s)
        future: asyncio.Future[R] = self._loop.create_future()
        self._check_open()
        if self._held is None:
            self._write_and_watch(request, version, future, deadline)
        else:
            self._hold(deadline, future, partial(self._write_and_watch, request, version, future))
        return future

    def _write_and_watch(
        self, request: Request[Any], version: int | None, future: asyncio.Future[Any], deadline: float
    ) -> None:
        self._write(request, version, future, deadline)
        if self.in_flight == 1:
            self._heard_at = self._loop.time()
            self._set_alarm()

    def start_without_response(self, request: Request[Any]) -> asyncio.Future[None]:
        """Write a request that gets no response: Produce with acks=0 (T17).

        The future is done when the socket has taken all bytes; until then the bytes occupy memory. Raises the same
        errors as `start`, and the future fails with the same errors as the future of `start`.
        """
        deadline = self._loop.time() + self._request_timeout_s
        future: asyncio.Future[None] = self._loop.create_future()
        self._check_open()
        if self._held is None:
            self._write_unanswered(request, future, deadline)
        else:
            self._hold(deadline, future, partial(self._write_unanswered, request, future))
        return future

    def _hold(self, deadline: float, future: asyncio.Future[Any], write: Callable[[float], None]) -> None:
        """Write the request when the throttle time or the login that delays requests has ended; the request's timeout
        starts with the write.
        """
        assert self._held is not None
        self._held.append(_Held(deadline, deadline - self._loop.time(), future, write))
        self._set_alarm()

    def _write_unanswered(self, request: Request[Any], future: asyncio.Future[None], deadline: float) -> None:
        self._write(request, None, None, 0.0)
        assert self._transport is not None
        if self._error is not None:
            self._fail_future(future, self._error)
        elif not self._transport.get_write_buffer_size():
            future.set_result(None)
        else:
            self._unwritten.append((deadline, future))
            self._set_alarm()

    async def send(self, request: Request[R], version: int | None = None, timeout_s: float | None = None) -> R:
        """Call `start`, and wait for the response."""
        return await self.start(request, version, timeout_s)

    def _write(
        self, request: Request[Any], version: int | None, future: asyncio.Future[Any] | None, deadline: float
    ) -> None:
        self._check_open()
        assert self._transport is not None
        if version is None:
            assert self.versions is not None, "versions are negotiated before anything else is sent"
            version = self.versions.choose(type(request))
        try:
            parts = self._protocol.send(request, version, future, deadline)
        except UnencodableMessage as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        # An error here may occur after the transport has written all or a part of the request, so the request counts as
        # sent: its future fails as after a lost connection.
        try:
            if future is not None:
                write_all(self._transport, parts)
                return
            if not self._has_unanswered:
                self._has_unanswered = True
                # with the limits 0, the transport calls `resume_writing` only when all bytes are written
                self._transport.set_write_buffer_limits(high=0)
            self._transport.write(b"".join(parts))  # not `writelines`, whose data some transports do not count
        except Exception as error:
            self._broke(error)

    def _check_open(self) -> None:
        """Raise the error that prevents sending, if there is one. If the transport is closing, its connection is
        already lost, and the transport reports the loss in the next iteration of the loop. Until that iteration,
        writing to some transports (CPython 3.12 and 3.13.0) raises an exception.
        """
        if self._error is None and self._transport is not None and self._transport.is_closing():
            self._fail(ConnectionFailed(f"{self.address}: the connection is closing"))
        if self._transport is None or self._error is not None or self._is_finishing:
            raise self._error or ConnectionFailed(f"{self.address}: not connected")

    def _broke(self, error: Exception) -> None:
        """Turn an unexpected exception of the transport into a lost connection, which callers can handle."""
        logger.info("%s: the transport failed", self.address, exc_info=error)
        self._fail(ConnectionFailed(f"{self.address}: the transport failed: {error!r}"))

    async def negotiate(self) -> None:
        """Request the API versions of the broker. Raises KafkaError."""
        version: int | None = FIRST_TRY
        while version is not None:
            tried = version
            response = await self.send(api_versions_request(), tried)
            version = next_try(response, tried)
        self.versions = VersionTable(response)

    async def log_in(self, login: SaslLogin) -> None:
        """Log in, and authenticate again before the login expires (KIP-368). Raises KafkaError, including
        AuthenticationFailed.
        """
        assert self.versions is not None
        lifetime_ms = await log_in(self._ask, self.versions, login, self.address.host)
        if lifetime_ms:
            seconds = lifetime_ms / 1000 * LOGIN_AGAIN_FRACTION
            self._login_again = self._loop.call_later(seconds, self._begin_login, login)

    async def _ask(self, request: Request[Any], version: int) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()
        now = max(self._loop.time(), self._throttled_until)
        self._write_and_watch(request, version, future, now + self._request_timeout_s)
        return await future

    def _begin_login(self, login: SaslLogin) -> None:
        if self.is_open:
            self._held = self._held or []
            self._logging_in = self._loop.create_task(self._log_in_again(login))

    async def _log_in_again(self, login: SaslLogin) -> None:
        try:
            await self.log_in(login)
        except KafkaError as error:
            if self._error is None:
                logger.warning("%s: not logged in again: %s", self.address, error.message)
            self._fail(error)
        self._logging_in = None
        self._write_held()

    def _write_held(self) -> None:
        """Write the requests that were held back, unless another reason to wait remains."""
        if self._logging_in is not None or self._end_of_throttling is not None:
            return
        held, self._held = self._held or [], None
        for each in held:
            each.write_late(self._loop.time())

    def _throttle(self, seconds: float) -> None:
        """Stop sending requests for this many seconds, as the broker's throttle time requires. The broker does not
        respond during this time, so
        deadlines are postponed
        too.
        """
        now = self._loop.time()
        until = now + min(seconds, MAX_THROTTLE_S)
        more_s = min(until - max(now, self._throttled_until), self._request_timeout_s)
        if more_s <= 0 or self._error is not None:
            return
        self._throttled_until = self._heard_at = until
        for request in self._protocol.in_flight:
            request.deadline += more_s
        self._unwritten = [(deadline + more_s, future) for deadline, future in self._unwritten]
        self._set_alarm()
        self._held = self._held or []
        if self._end_of_throttling is not None:
            self._end_of_throttling.cancel()
        self._end_of_throttling = self._loop.call_at(self._throttled_until, self._go_on)

    def _go_on(self) -> None:
        self._end_of_throttling = None
        self._write_held()

    def close(self, error: KafkaError | None = None) -> None:
        """Close the connection; requests in flight fail with `error`. A second call does nothing."""
        self._fail(error or ConnectionFailed(f"{self.address}: the connection was closed"))

    async def finish(self) -> None:
        """Wait until the broker has read the requests that get no response. The client ends its side of the connection,
        and the broker closes the connection after reading all requests.

        Returns immediately if there are no such requests.
        """
        if self._end_of_throttling is not None and (self._held or self._has_unanswered):
            await asyncio.wait([self._lost], timeout=self._throttled_until - self._loop.time())
            await asyncio.sleep(0)  # let the event loop write the delayed requests
        if self._transport is None or self._error is not None or not self._has_unanswered:
            return
        # With TLS, the client cannot end only its own side. It sends a request instead: the response proves that the
        # broker has read all earlier requests.
        if not self._transport.can_write_eof():
            await self.send(api_versions_request(), LAST_TRY)
            self.close()
            return
        self._is_finishing = True
        try:
            self._transport.write_eof()
        except Exception as error:
            self._broke(error)
            return
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """Wait until the transport is closed."""
        await asyncio.shield(self._lost)

    # methods that the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has the methods of asyncio.Transport but does not derive from it.
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._protocol.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._error is not None:
            return
        self._heard_at = self._loop.time()
        try:
            for future, response in self._protocol.received(nbytes):
                throttle_ms = getattr(response, "throttle_time_ms", 0)
                if throttle_ms > 0:
                    self._throttle(throttle_ms / 1000)
                if not future.done():
                    future.set_result(response)
        except ConnectionFailed as error:
            logger.warning("%s: %s", self.address, error)
            self._fail(error)

    def resume_writing(self) -> None:
        unwritten, self._unwritten = self._unwritten, []
        for _, future in unwritten:
            if not future.done():
                future.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f": {exc}" if exc is not None else ""
        self._fail(ConnectionFailed(f"{self.address}: the broker closed the connection{reason}"))
        if not self._lost.done():
            self._lost.set_result(None)

    def _set_alarm(self) -> None:
        """Set the timer to the deadline of the oldest request."""
        deadlines = [request.deadline for request in islice(self._protocol.in_flight, 1)]
        deadlines += [deadline for deadline, _ in self._unwritten[:1]]
        deadlines += [held.deadline for held in self._held or ()]
        if deadlines:
            self._timer.set(min(deadlines))

    def check_deadlines(self) -> None:
        """Close the connection if the oldest request is late. If this method is not called, the timer closes the
        connection slightly after the deadline.
        """
        now = self._loop.time()
        if self._held:
            late_held = [held for held in self._held if held.deadline <= now]
            self._held = [held for held in self._held if held.deadline > now]
            for held in late_held:
                held.give_up(self.address)
        late = ""
        if self._protocol.in_flight and self._protocol.in_flight[0].deadline <= now:
            late = f"no answer to {self._protocol.in_flight[0].exchange.api_key.message_name}"
        elif self._unwritten and self._unwritten[0][0] <= now:
            late = "the broker does not read the connection"
        if late:
            self._fail(RequestTimedOut(ErrorCode.REQUEST_TIMED_OUT, f"{self.address}: {late} in time"))
        else:
            self._set_alarm()

    def _fail(self, error: KafkaError) -> None:
        if self._error is not None:
            return
        self._error = error
        self._timer.cancel()
        if self._login_again is not None:
            self._login_again.cancel()
        if self._end_of_throttling is not None:
            self._end_of_throttling.cancel()
            self._loop.call_soon(self._go_on)
        if self._transport is not None:
            try:
                self._transport.abort()
            except Exception:
                logger.warning("%s: the transport could not be closed", self.address, exc_info=True)
        waiting = [request.waiter for request in self._protocol.in_flight]
        waiting += [future for _, future in self._unwritten]
        self._protocol.in_flight.clear()
        self._unwritten.clear()
        for future in waiting:
            self._fail_future(future, error)
        if self._on_lost is not None:
            self._on_lost(self)

    @staticmethod
    def _fail_future(future: asyncio.Future[Any], error: KafkaError) -> None:
        if not future.done():
            future.set_exception(error)
            future.exception()  # mark the error as retrieved: otherwise the loop logs it if no caller waits


def write_all(transport: asyncio.WriteTransport, parts: Sequence[Buffer]) -> None:
    """Write the parts in order.

    Before Python 3.12 asyncio's `writelines` copies all parts into one buffer, which costs more CPU for a batch of
    512 KiB than a further call of the kernel. So large parts are written one by one.
    """
    if not WRITELINES_COPIES or max(map(len, parts)) < COPIED_BYTES:
        transport.writelines(parts)
        return
    small: list[Buffer] = []
    for part in parts:
        if len(part) < COPIED_BYTES:
            small.append(part)
            continue
        transport.write(b"".join(small))
        small.clear()
        transport.write(memoryview(part))
    transport.write(b"".join(small))


async def connect(
    address: Address,
    *,
    client_id: str,
    request_timeout_s: float,
    setup_timeout_s: float,
    on_lost: Callable[[BrokerConnection], None] | None = None,
    open_connection: OpenConnection | None = None,
    security: Security = UNSECURED,
) -> BrokerConnection:
    """Return an open connection with known API versions, to the first address of the name that responds.

    `setup_timeout_s` applies to each address, so that an unresponsive address does not block the next.
    `open_connection` opens the socket; by default the event loop does. Raises ConnectionFailed, UnsupportedVersion,
    AuthenticationFailed.
    """
    errors: list[str] = []
    open_connection = open_connection or _loop().create_connection
    for host, port in await _addresses_of(address, setup_timeout_s):
        connection = BrokerConnection(address, client_id, request_timeout_s, on_lost)
        try:
            async with asyncio.timeout(setup_timeout_s):
                await open_connection(partial(_itself, connection), host, port, **security.tls_options(address.host))
                await connection.negotiate()
                if security.login is not None:
                    await connection.log_in(security.login)
            return connection
        except BaseException as error:
            connection.close()
            if isinstance(error, TimeoutError):
                reason = f"no connection within {setup_timeout_s:g} s"
            elif isinstance(error, ssl.SSLCertVerificationError):
                raise AuthenticationFailed(
                    ErrorCode.NETWORK_EXCEPTION,
                    f"{address}: the broker's certificate is not accepted: {error.verify_message}",
                ) from error
            # OverflowError: the port number is above 65535
            elif isinstance(error, OSError | ValueError | OverflowError):
                reason = str(error) or type(error).__name__
            elif isinstance(error, ConnectionFailed | RequestTimedOut):
                reason = error.message.removeprefix(f"{address}: ")
            elif isinstance(error, KafkaError) or not isinstance(error, Exception):
                raise
            else:  # any other exception of the loop means that no connection could be made
                logger.info("%s: connecting failed", address, exc_info=error)
                reason = repr(error)
            errors.append(reason if host == address.host else f"{host}: {reason}")
    raise ConnectionFailed(f"{address}: {'; '.join(errors)}")


def _is_literal(host: str) -> bool:
    """Return whether `host` is an IP address, so that no name lookup (in a thread) is needed."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that resolves names and opens sockets."""
    return asyncio.get_running_loop()


def _itself(connection: BrokerConnection) -> BrokerConnection:
    return connection


async def _addresses_of(address: Address, timeout_s: float) -> list[tuple[str, int]]:
    """Return all addresses of the name, in the resolver's order. Raises ConnectionFailed, also if the name is
    invalid."""
    try:
        if _is_literal(address.host):
            return [(address.host, address.port)]
        async with asyncio.timeout(timeout_s):
            found = await _loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise ConnectionFailed(f"{address}: the name was not resolved within {timeout_s:g} s") from None
    except (OSError, ValueError, OverflowError) as error:  # unknown or invalid name, or a port above 65535
        raise ConnectionFailed(f"{address}: {error}") from error
    places: list[tuple[str, int]] = []
    for *_, place in found:
        host, port = str(place[0]), int(place[1])
        if len(place) == IPV6_PLACE and place[3] and "%" not in host:
            host = f"{host}%{place[3]}"  # a link-local address is valid only with its interface
        places.append((host, port))
    if not places:
        raise ConnectionFailed(f"{address}: the name resolves to no address")
    return list(dict.fromkeys(places))
