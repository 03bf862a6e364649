"""Envelope (58) has the layout of Kafka's `EnvelopeRequestData` and `EnvelopeResponseData`: compact bytes, then tagged
fields.
"""

from oncelog_protocol.codec import codec
from oncelog_protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse


def test_an_envelope_carries_a_request() -> None:
    request = EnvelopeRequest(request_data=b"abc", request_principal=b"p", client_host_address=b"\x7f\0\0\1")
    encoded = codec(EnvelopeRequest, 0).encode(request)
    assert encoded == b"\x04abc\x02p\x05\x7f\0\0\1\0"
    assert codec(EnvelopeRequest, 0).decode(encoded) == request


def test_an_envelope_carries_a_response() -> None:
    for response, encoded in (
        (EnvelopeResponse(response_data=b"xy", error_code=0), b"\x03xy\0\0\0"),
        (EnvelopeResponse(response_data=None, error_code=31), b"\0\0\x1f\0"),
    ):
        assert codec(EnvelopeResponse, 0).encode(response) == encoded
        assert codec(EnvelopeResponse, 0).decode(encoded) == response
