"""Decides which requests a connection of a SASL listener may send; checked before a request is decoded.

A connection without a login gate may send any request: all connections of other listeners, and authenticated
connections on listeners without re-authentication.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Protocol, TypeVar

from oncelog_broker.runtime.clock import Clock
from oncelog_broker.security.principal import Principal
from oncelog_broker.security.sasl.exchange import Phase, SaslExchange
from oncelog_broker.security.sasl.mechanism import Refused
from oncelog_broker.server.net.answer_queue import Slot
from oncelog_broker.server.net.frame_reader import SIZE
from oncelog_broker.server.net.header_cache import PREFIX
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import KafkaError, MalformedMessage
from oncelog_protocol.wire_writers import Buffer

logger = logging.getLogger(__name__)

R = TypeVar("R")

LOGIN_SECONDS: Final = 30.0
"""The number of seconds that each login may take. The time of the first login starts with the connection, the time of a
later login (KIP-368) with its handshake. Kafka has no limit on the duration of a login.
"""


class GatedConnection(Protocol):
    """The attributes of a connection that a login gate needs (`connection.BrokerConnection`)."""

    client_host: str

    def authenticated(self, principal: Principal, *, may_expire: bool) -> None: ...

    def close_after_answer(self) -> None: ...

    def respond(self, parts: list[Buffer], /) -> None: ...

    def wait_for(self, answer: asyncio.Future[Any], *, reads_frame: bool, holds_back: bool) -> Slot: ...

    def finish(self, slot: Slot, /) -> None: ...

    def cancelled(self, slot: Slot, /) -> None: ...


class LoginGate:
    """The login gate of one connection: decides which requests are allowed before and after a login."""

    __slots__ = ("_clock", "_failed_delay_seconds", "_listener", "_until", "exchange", "max_frame_bytes")

    def __init__(
        self,
        exchange: SaslExchange,
        clock: Clock,
        listener: str,
        max_frame_bytes: int,
        failed_delay_seconds: float,
    ) -> None:
        self.exchange = exchange
        self._clock = clock
        self._listener = listener
        self.max_frame_bytes = max_frame_bytes
        self._failed_delay_seconds = failed_delay_seconds
        self._until: float
        self._begin_login()

    def is_late(self, now: float) -> bool:
        """Return whether the current login takes too long. `now` is the loop's time."""
        return not self.exchange.is_done and now > self._until

    def handshake(self, mechanism: str, version: int) -> None:
        """Choose a SASL mechanism. A client that logs in again gets LOGIN_SECONDS for this login, as for its first
        login (S94). Raises KafkaError: UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE."""
        is_again = self.exchange.is_done
        self.exchange.handshake(mechanism, version)
        if is_again:
            self._begin_login()

    def _begin_login(self) -> None:
        self._until = asyncio.get_running_loop().time() + LOGIN_SECONDS

    def lets_in(self, connection: GatedConnection, frame: memoryview) -> bool:
        """Return whether the frame is a request that may be handled; False means that the frame was a SASL token, whose
        response was already sent. Raises MalformedMessage for a request that is not allowed: the caller then closes the
        connection, as Kafka does.
        """
        if self.exchange.phase is Phase.RAW_TOKENS:
            self._take_raw(connection, bytes(frame))
            return False
        if len(frame) < PREFIX.size:
            raise MalformedMessage(f"a frame of {len(frame)} bytes")
        api_key, _, _ = PREFIX.unpack_from(frame)
        if self.exchange.allows(api_key, self._clock.uptime()):
            return True
        name = ApiKey(api_key).name if api_key in ApiKey._value2member_map_ else str(api_key)
        if self.exchange.is_done:
            raise MalformedMessage(f"{name} after the end of the session: it should have authenticated again")
        raise MalformedMessage(f"{name} before it was authenticated")

    def authenticate(self, connection: GatedConnection, token: bytes) -> tuple[bytes, int]:
        """Process a SASL token; return the response, and the session lifetime of the login in milliseconds. Raises
        KafkaError for a refused token; if the exception is a Refused, the caller responds with the result of `refusal`.
        """
        try:
            progress = self.exchange.authenticate(token, self._clock.now_ms() / 1000, self._clock.uptime())
        except Refused as refused:
            logger.info(
                "authentication failed",
                extra={"client": connection.client_host, "listener": self._listener, "reason": refused.reason},
            )
            raise
        if progress.principal is not None:
            connection.authenticated(progress.principal, may_expire=progress.session_lifetime_ms > 0)
        return progress.token, progress.session_lifetime_ms

    def refusal(self, connection: GatedConnection, response: R) -> asyncio.Future[R]:
        """Return `response` after a delay, which slows down password guessing; the connection is closed after this
        response.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        connection.close_after_answer()

        def give() -> None:
            if not answer.done():
                answer.set_result(response)

        loop.call_later(self._failed_delay_seconds, give)
        return answer

    def _take_raw(self, connection: GatedConnection, token: bytes) -> None:
        try:
            answer, _ = self.authenticate(connection, token)
        except KafkaError as error:
            # If the client sends raw tokens (older clients do so instead of SaslAuthenticate), the broker cannot send
            # an error, and closes the connection.
            held = self.refusal(connection, error)
            slot = connection.wait_for(held, reads_frame=False, holds_back=True)
            held.add_done_callback(
                lambda done: connection.cancelled(slot) if done.cancelled() else connection.finish(slot)
            )
            return
        connection.respond([SIZE.pack(len(answer)) + answer])
