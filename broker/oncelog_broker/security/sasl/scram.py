"""SCRAM-SHA-256 and -512 (RFC 5802): client and server each prove that they know the password or its credential."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from oncelog_broker.security.sasl.credentials import ScramCredential
from oncelog_broker.security.sasl.mechanism import Refused, Step, invalid_credentials
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.scram import (
    ScramMechanism,
    attributes,
    auth_message,
    from_base64,
    keyed,
    stored_key,
    to_base64,
    unescaped_name,
    xor,
)

MAX_TOKEN_BYTES: Final = 8192
"""Limit in bytes on a client's message. The limit is needed because the first message of a client, which has not
authenticated yet, is kept until the second message arrives.
"""


class ScramExchange:
    """A SCRAM exchange, which has two tokens. `credential_of` returns a credential, or a decoy (a credential without a
    known password) for an unknown user.
    """

    def __init__(
        self, mechanism: ScramMechanism, nonce: str, credential_of: Callable[[str], tuple[ScramCredential, bool]]
    ) -> None:
        self._mechanism = mechanism
        self._server_nonce = nonce
        self._credential_of = credential_of
        self._first: tuple[str, str, str] | None = None
        self._user = ""
        self._binding = ""
        """The GS2 header of the client's first message, which the client's last message must repeat."""
        self._credential: ScramCredential
        self._exists = False

    def step(self, token: bytes, now_s: float) -> Step:
        if len(token) > MAX_TOKEN_BYTES:
            raise self._refused(f"SCRAM: a message of {len(token)} bytes")
        try:
            text = token.decode()
            return self._begin(text) if self._first is None else self._end(text)
        except (UnicodeDecodeError, MalformedMessage) as error:
            reason = str(error) if isinstance(error, MalformedMessage) else "SCRAM: no text"
            raise self._refused(reason) from None

    def _begin(self, message: str) -> Step:
        binding, _, rest = message.partition(",")
        authorization, _, bare = rest.partition(",")
        if binding not in ("n", "y"):
            raise MalformedMessage("SCRAM: channel binding is not supported")
        name, client_nonce = attributes(bare, "n", "r")
        self._user = unescaped_name(name)
        if not self._user or not client_nonce:
            raise MalformedMessage("SCRAM: no user, or no nonce")
        if authorization and unescaped_name(authorization.removeprefix("a=")) != self._user:
            raise Refused(
                "Authentication failed: Client requested an authorization id that is different from username",
                f"{self._user!r:.100} requests another authorization identity",
            )
        self._credential, self._exists = self._credential_of(self._user)
        nonce = client_nonce + self._server_nonce
        answer = f"r={nonce},s={to_base64(self._credential.salt)},i={self._credential.iterations}"
        self._first = (bare, answer, nonce)
        self._binding = to_base64(f"{binding},{authorization},".encode())
        return Step(answer.encode())

    def _end(self, message: str) -> Step:
        assert self._first is not None
        bare, answer, expected_nonce = self._first
        without_proof, separator, proof_text = message.rpartition(",p=")
        binding, nonce = attributes(without_proof, "c", "r")
        if not separator or binding != self._binding:
            raise MalformedMessage("SCRAM: no proof, or another channel binding than before")
        # The last message must repeat the server's nonce (CVE-2024-56128).
        if not hmac.compare_digest(nonce.encode(), expected_nonce.encode()):
            raise self._refused("SCRAM: the nonce is not the one of this exchange")
        credential, mechanism = self._credential, self._mechanism
        signed = auth_message(bare, answer, without_proof)
        signature = keyed(mechanism, credential.stored_key, signed)
        proof = from_base64(proof_text)
        if len(proof) != len(signature):
            raise MalformedMessage("SCRAM: a proof of another length")
        is_right = hmac.compare_digest(stored_key(mechanism, xor(proof, signature)), credential.stored_key)
        if not (is_right and self._exists):
            raise self._refused(f"{'a wrong password' if self._exists else 'no such user'}: {self._user!r:.100}")
        return Step(b"v=" + to_base64(keyed(mechanism, credential.server_key, signed)).encode(), self._user)

    def _refused(self, reason: str) -> Refused:
        return invalid_credentials(self._mechanism.mechanism_name, reason)
