"""SaslAuthenticate (36): carries a SASL token from the client to the broker, and the broker's token back (KIP-152)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, bytes_, int16, int64, message, string


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    """The client's token.

    v2: flexible.
    """

    auth_bytes: bytes = bytes_()


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """The server's token.

    v1: session_lifetime_ms: the client must authenticate again within this time (KIP-368, T22).
    v2: flexible.

    Errors: SASL_AUTHENTICATION_FAILED (the broker closes the connection), ILLEGAL_SASL_STATE.
    """

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64("1+", default=0)  # lifetime of the login in ms; 0 means no limit
