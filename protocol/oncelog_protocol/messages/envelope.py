"""Envelope (58): a broker forwards a client's request to the controller (KIP-590). Only brokers send this request."""

from __future__ import annotations

from oncelog_protocol.schema import Request, bytes_, int16, message


@message(api_key=58, versions="0", flexible="0+")
class EnvelopeRequest(Request["EnvelopeResponse"]):
    """A client's request with its header, and the client's principal and address."""

    request_data: bytes = bytes_()
    request_principal: bytes | None = bytes_(nullable="0+", default=b"")
    client_host_address: bytes = bytes_()


@message(api_key=58, versions="0", flexible="0+")
class EnvelopeResponse:
    """The response to the request, with its header; empty if the envelope itself has an error.

    Errors: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST (the API of the wrapped request cannot be forwarded),
    UNSUPPORTED_VERSION.
    """

    response_data: bytes | None = bytes_(nullable="0+", default=None)
    error_code: int = int16()
