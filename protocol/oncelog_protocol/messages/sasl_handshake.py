"""SaslHandshake (17): chooses a SASL mechanism. The API never becomes flexible (T13)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, message, string


@message(api_key=17, versions="0-1", flexible=None)
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    """Choose a mechanism, before any request except ApiVersions.

    v0: after the handshake, the client sends its tokens without a request header, each after an int32 size.
    v1: the client sends its tokens in SaslAuthenticate requests (KIP-152, T22).
    """

    mechanism: str = string()


@message(api_key=17, versions="0-1", flexible=None)
class SaslHandshakeResponse:
    """The response says whether the mechanism is enabled.

    Errors: UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE.
    """

    error_code: int = int16()
    mechanisms: list[str] = array(of=string())  # the mechanisms that are enabled on this listener
