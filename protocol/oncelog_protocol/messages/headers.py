"""The headers that precede the body of every request and response. `api.request_header_version` returns the version to
use.
"""

from __future__ import annotations

from oncelog_protocol.schema import int16, int32, message, string


@message(versions="1-2", flexible="2+")
class RequestHeader:
    """The header of a request: the API key, the API version, and a correlation id that the response repeats.

    v1: client_id.
    v2: flexible: tagged fields.
    """

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    # The length of client_id is not compact, not even in v2, because a broker must be able to read the header of an
    # ApiVersions request whose version the broker does not know.
    client_id: str | None = string("1+", nullable="1+", flexible=None, default=None)


@message(versions="0-1", flexible="1+")
class ResponseHeader:
    """The header of a response: the correlation id of its request.

    v1: flexible: tagged fields. For ApiVersions, the header stays at v0 (T1).
    """

    correlation_id: int = int32()
