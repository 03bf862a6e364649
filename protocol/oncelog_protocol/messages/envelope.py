"""Envelope (58): a broker passes on to the controller what a client asked it for (KIP-590). Among brokers only."""

from __future__ import annotations

from oncelog_protocol.schema import Request, bytes_, int16, message


@message(api_key=58, versions="0", flexible="0+")
class EnvelopeRequest(Request["EnvelopeResponse"]):
    """A request with its header, and who sent it to the broker that passes it on."""

    request_data: bytes = bytes_()
    request_principal: bytes | None = bytes_(nullable="0+", default=b"")
    client_host_address: bytes = bytes_()


@message(api_key=58, versions="0", flexible="0+")
class EnvelopeResponse:
    """The response to that request, with its header; none where there is an error of the envelope.

    Errors: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST (the API is not for the controller), UNSUPPORTED_VERSION.
    """

    response_data: bytes | None = bytes_(nullable="0+", default=None)
    error_code: int = int16()
