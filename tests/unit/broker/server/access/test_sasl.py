"""SaslHandshake and SaslAuthenticate: the steps of a login, and the responses to requests that are out of order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.handlers import asked

from oncelog_broker.config.secret import Secret
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.security.sasl.exchange import SaslExchange
from oncelog_broker.security.sasl.plain import PlainMechanism
from oncelog_broker.server.access import sasl_authenticate, sasl_handshake
from oncelog_broker.server.net.login_gate import LoginGate
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog_protocol.messages.sasl_handshake import SaslHandshakeRequest

RIGHT, WRONG = b"\0alice\0a", b"\0alice\0wrong"


class Client:
    """A connection that requires a login and has not logged in yet."""

    def __init__(self) -> None:
        exchange = SaslExchange({"PLAIN": lambda: PlainMechanism({"alice": Secret("a")})}, {"PLAIN": 60_000})
        self.gate = LoginGate(exchange, ManualClock(), "SASL", 1000, failed_delay_seconds=0.0)
        self.principal: Any = None
        self.closes_after_answer = False

    async def ask(self, handler: Any, api: ApiKey, request: Any) -> Any:
        context = asked(api, 1, gate=self.gate)
        context.connection.authenticated = self._authenticated  # type: ignore[method-assign]
        context.connection.close_after_answer = self._close_after_answer  # type: ignore[method-assign]
        answer = handler.handle(request, context)
        return await answer if isinstance(answer, asyncio.Future) else answer

    def _authenticated(self, principal: Any, *, may_expire: bool) -> None:
        self.principal = principal

    def _close_after_answer(self) -> None:
        self.closes_after_answer = True

    async def handshake(self, mechanism: str = "PLAIN") -> Any:
        return await self.ask(sasl_handshake, ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism))

    async def authenticate(self, token: bytes) -> Any:
        return await self.ask(sasl_authenticate, ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))


async def test_a_login_succeeds() -> None:
    client = Client()
    chosen = await client.handshake()
    assert (chosen.error_code, chosen.mechanisms) == (ErrorCode.NONE, ["PLAIN"])
    answer = await client.authenticate(RIGHT)
    assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 60_000)
    assert str(client.principal) == "User:alice"
    assert not client.closes_after_answer


async def test_a_wrong_password_is_reported_and_the_connection_closed() -> None:
    client = Client()
    await client.handshake()
    answer = await client.authenticate(WRONG)
    assert (answer.error_code, answer.auth_bytes) == (ErrorCode.SASL_AUTHENTICATION_FAILED, b"")
    assert (client.principal, client.closes_after_answer) == (None, True)


async def test_an_unknown_mechanism_is_answered_with_the_known_ones_and_the_connection_closed() -> None:
    client = Client()
    answer = await client.handshake("GSSAPI")
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])
    assert client.closes_after_answer


async def test_a_token_before_the_handshake_is_refused() -> None:
    client = Client()
    answer = await client.authenticate(RIGHT)
    assert (answer.error_code, client.principal) == (ErrorCode.ILLEGAL_SASL_STATE, None)


@pytest.mark.parametrize("handler", [sasl_handshake, sasl_authenticate])
def test_a_login_on_a_listener_without_sasl_is_refused(handler: Any) -> None:
    request: Any = SaslHandshakeRequest(mechanism="PLAIN")
    if handler is sasl_authenticate:
        request = SaslAuthenticateRequest(auth_bytes=RIGHT)
    answer = handler.handle(request, asked(ApiKey.SASL_HANDSHAKE, 1))
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
