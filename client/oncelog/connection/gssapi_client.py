"""The client's side of SASL GSSAPI (RFC 4752), which is Kerberos, with the library gssapi (the extra `gssapi`).

The library reads its ticket from the usual Kerberos locations: the credential cache of `kinit`, or the keytab that
KRB5_CLIENT_KTNAME names.
"""

from __future__ import annotations

from typing import Any, Final

from oncelog.errors import AuthenticationFailed, ConfigError
from oncelog_protocol.errors import ErrorCode

NO_LAYER: Final = 1
"""The bit for "no security layer": Kerberos neither signs nor encrypts requests. TLS encrypts the connection instead.
"""
OFFER_BYTES: Final = 4
"""Size of the broker's offer: one byte with the supported security layers, and three bytes with the largest message
size.
"""


class GssapiClient:
    """The state of one login. Client and broker exchange tokens until the security context is established; the client
    then chooses "no security layer".

    `answer` requests a ticket from the ticket server, which may block, so call it in a thread.
    """

    def __init__(self, host: str, service: str) -> None:
        """`service` and `host` form the broker's principal, service/host. Raises ConfigError if the library is not
        installed.
        """
        try:
            import gssapi
        except ImportError as error:
            raise ConfigError(
                f"sasl_mechanism=GSSAPI: needs gssapi: pip install 'oncelog[gssapi]' ({error})"
            ) from error
        self._errors: type[Exception] = gssapi.exceptions.GSSError
        try:
            name = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
            self._context: Any = gssapi.SecurityContext(name=name, usage="initiate")
        except self._errors as error:
            raise _failed(error) from error
        self._is_done = False

    def first(self) -> bytes:
        return self._step(None)

    def answer(self, token: bytes) -> bytes | None:
        if self._is_done:
            return None
        if not self._context.complete:
            return self._step(token)
        return self._without_layer(token)

    def _step(self, token: bytes | None) -> bytes:
        try:
            return bytes(self._context.step(token) or b"")
        except self._errors as error:
            raise _failed(error) from error

    def _without_layer(self, token: bytes) -> bytes:
        try:
            offer = bytes(self._context.unwrap(token).message)
        except self._errors as error:
            raise _failed(error) from error
        if len(offer) != OFFER_BYTES or not offer[0] & NO_LAYER:
            raise _failed("the broker wants a security layer of Kerberos, which Kafka does not have")
        self._is_done = True
        return bytes(self._context.wrap(bytes([NO_LAYER, 0, 0, 0]), False).message)


def _failed(why: object) -> AuthenticationFailed:
    return AuthenticationFailed(ErrorCode.SASL_AUTHENTICATION_FAILED, f"Kerberos: {why}")
