"""(pure) The client's side of SASL: each mechanism creates a first token and responds to the broker's tokens."""

from __future__ import annotations

import hmac
from typing import Protocol

from oncelog.errors import AuthenticationFailed
from oncelog_protocol.errors import ErrorCode, MalformedMessage
from oncelog_protocol.scram import (
    CHANNEL_BINDING,
    GS2_HEADER,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramMechanism,
    attributes,
    auth_message,
    client_key,
    escaped_name,
    from_base64,
    keyed,
    salted_password,
    server_key,
    stored_key,
    to_base64,
    xor,
)


class SaslClient(Protocol):
    """The client's side of one login. The methods raise AuthenticationFailed."""

    def first(self) -> bytes:
        """Return the first token of the exchange."""

    def answer(self, token: bytes) -> bytes | None:
        """Return the response to a token of the broker; None when the exchange is done."""


class PlainClient:
    def __init__(self, username: str, password: str) -> None:
        self._token = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def answer(self, token: bytes) -> bytes | None:
        return None


class OAuthClient:
    def __init__(self, token: str) -> None:
        self._token = token

    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def answer(self, token: bytes) -> bytes | None:
        # A token that is not empty reports an error. The client must respond with the byte 1, and the broker then
        # refuses the login (RFC 7628).
        return b"\x01" if token else None


class ScramClient:
    """The mechanism SCRAM. The first call of `answer` takes some milliseconds of CPU time for every 4096 iterations of
    the hash.
    """

    def __init__(self, mechanism: ScramMechanism, username: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._first_bare = f"n={escaped_name(username)},r={nonce}"
        self._expected: bytes | None = None

    def first(self) -> bytes:
        return f"{GS2_HEADER}{self._first_bare}".encode()

    def answer(self, token: bytes) -> bytes | None:
        try:
            if self._expected is None:
                return self._prove(token.decode())
            self._verify(token.decode(), self._expected)
            return None
        except (MalformedMessage, UnicodeDecodeError, ValueError) as error:
            raise _failed(f"the broker does not speak SCRAM: {error}") from None

    def _prove(self, challenge: str) -> bytes:
        nonce, salt, iterations_text = attributes(challenge, "r", "s", "i")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise _failed("the broker's nonce does not continue ours")
        iterations = int(iterations_text)
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise _failed(
                f"the broker requires {iterations} iterations; this client computes from {MIN_ITERATIONS} to "
                f"{MAX_ITERATIONS}"
            )
        mechanism = self._mechanism
        salted = salted_password(mechanism, self._password, from_base64(salt), iterations)
        without_proof = f"c={CHANNEL_BINDING},r={nonce}"
        signed = auth_message(self._first_bare, challenge, without_proof)
        key = client_key(mechanism, salted)
        proof = xor(key, keyed(mechanism, stored_key(mechanism, key), signed))
        self._expected = keyed(mechanism, server_key(mechanism, salted), signed)
        return f"{without_proof},p={to_base64(proof)}".encode()

    def _verify(self, verdict: str, expected: bytes) -> None:
        (signature,) = attributes(verdict, "v")
        if not hmac.compare_digest(from_base64(signature), expected):
            raise _failed("the broker does not know the password: it may be an impostor")


def _failed(message: str) -> AuthenticationFailed:
    return AuthenticationFailed(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
