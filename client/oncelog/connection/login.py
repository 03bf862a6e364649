"""Logs in with one SaslHandshake request, and then with as many SaslAuthenticate requests as the mechanism requires."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from oncelog.connection.security import SaslLogin
from oncelog.connection.versions import VersionTable
from oncelog.errors import AuthenticationFailed, error_for
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog_protocol.messages.sasl_handshake import SaslHandshakeRequest
from oncelog_protocol.schema import Request


class Ask(Protocol):
    """A function that sends a login request ahead of the requests that wait for the login, and returns the response."""

    async def __call__(self, request: Request[Any], version: int) -> Any: ...


async def log_in(ask: Ask, versions: VersionTable, login: SaslLogin, host: str) -> int:
    """Log in to the broker at `host`. Returns the lifetime of the login in milliseconds; 0 means unlimited. Raises
    KafkaError, including AuthenticationFailed.
    """
    handshake = await ask(SaslHandshakeRequest(mechanism=login.mechanism), versions.choose(SaslHandshakeRequest))
    if handshake.error_code != ErrorCode.NONE:
        raise error_for(
            handshake.error_code,
            f"sasl_mechanism={login.mechanism}: the broker has {', '.join(handshake.mechanisms) or 'none'}",
        )
    client = await login.client(host)
    token: bytes | None = await asyncio.to_thread(client.first)
    lifetime_ms = 0
    while token is not None:
        answer = await ask(SaslAuthenticateRequest(auth_bytes=token), versions.choose(SaslAuthenticateRequest))
        if answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise AuthenticationFailed(ErrorCode.SASL_AUTHENTICATION_FAILED, answer.error_message or "refused")
        if answer.error_code != ErrorCode.NONE:
            raise error_for(answer.error_code, answer.error_message or "the login was refused")
        lifetime_ms = answer.session_lifetime_ms
        token = await asyncio.to_thread(client.answer, bytes(answer.auth_bytes))
    return lifetime_ms
