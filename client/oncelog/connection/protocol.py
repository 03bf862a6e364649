"""One broker connection without the socket: encodes requests to bytes, and decodes bytes to responses.

Kafka responds in the order of the requests, so the requests in flight form a queue. If a response does not have the
correlation id of the first request, the stream is no longer usable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Any, Final, Generic, NamedTuple, TypeVar

from oncelog.connection.framing import SIZE, FrameReader, FrameTooLarge
from oncelog.errors import ConnectionFailed
from oncelog_protocol.api import ApiKey, request_header_version, response_header_version, response_type
from oncelog_protocol.codec import MessageCodec, codec
from oncelog_protocol.errors import ErrorCode, MalformedMessage
from oncelog_protocol.messages.api_versions import ApiVersionsResponse
from oncelog_protocol.messages.headers import RequestHeader, ResponseHeader
from oncelog_protocol.schema import Request, schema_of
from oncelog_protocol.wire_writers import Buffer

T = TypeVar("T")

MAX_RESPONSE_BYTES: Final = 100 * 1024 * 1024 + 64 * 1024
"""Largest response in bytes: 100 MiB of records, which is also a broker's default limit for a request, plus some
overhead.
"""
CORRELATION_ID_MASK: Final = 2**31 - 1
ERROR_CODE: Final = Struct(">h")


class Exchange(NamedTuple):
    """The request and response codecs of one version of one API."""

    api_key: ApiKey
    request_header: MessageCodec[RequestHeader]
    request: MessageCodec[Any]
    response_header: MessageCodec[ResponseHeader]
    response: MessageCodec[Any]


@cache
def exchange(cls: Any, version: int) -> Exchange:
    """Return the API key and codecs of a request class in one version. Raises ValueError if the class does not have the
    version."""
    number = schema_of(cls).api_key
    assert number is not None, f"{cls.__name__} is not a request"
    api_key = ApiKey(number)
    response: Any = response_type(api_key)
    return Exchange(
        api_key,
        codec(RequestHeader, request_header_version(api_key, version)),
        codec(cls, version),
        codec(ResponseHeader, response_header_version(api_key, version)),
        codec(response, version),
    )


@dataclass(slots=True)
class InFlight(Generic[T]):
    """A request waiting for its response. `waiter` is any object that the caller passes; it is returned together with
    the response.
    """

    correlation_id: int
    exchange: Exchange
    deadline: float
    waiter: T


class ConnectionProtocol(Generic[T]):
    """The protocol state of one connection. `send` returns the bytes of a request; `get_buffer` and `received` accept
    bytes and return responses.
    """

    __slots__ = ("_client_id", "_correlation_id", "_reader", "in_flight")

    def __init__(self, client_id: str | None, max_response_bytes: int = MAX_RESPONSE_BYTES) -> None:
        self._client_id = client_id
        self._correlation_id = 0
        self._reader = FrameReader(max_response_bytes)
        self.in_flight: deque[InFlight[T]] = deque()

    def send(self, request: Request[Any], version: int, waiter: T | None, deadline: float = 0.0) -> list[Buffer]:
        """Return the frame of `request`, in parts. A request without a `waiter` gets no response (Produce with acks=0).

        Raises UnencodableMessage, without any change of state.
        """
        cls: Any = type(request)
        codecs = exchange(cls, version)
        correlation_id = self._correlation_id
        header = RequestHeader(
            request_api_key=codecs.api_key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self._client_id,
        )
        parts: list[Buffer] = [b""]
        codecs.request_header.encode_parts(header, parts)
        codecs.request.encode_parts(request, parts)
        parts[0] = SIZE.pack(sum(map(len, parts)))
        if waiter is not None:
            self.in_flight.append(InFlight(correlation_id, codecs, deadline, waiter))
        self._correlation_id = (correlation_id + 1) & CORRELATION_ID_MASK
        return parts

    def get_buffer(self) -> memoryview:
        """Return the buffer into which the next bytes are received."""
        return self._reader.get_buffer()

    def received(self, size: int) -> Iterator[tuple[T, Any]]:
        """Process `size` received bytes; yield the (waiter, response) pairs that these bytes complete.

        Raises ConnectionFailed at the first bytes that are not an expected response; the connection is then useless,
        and the requests in flight get no response.
        """
        try:
            for frame in self._reader.received(size):
                yield self._complete(frame)
        except (FrameTooLarge, MalformedMessage) as error:
            raise ConnectionFailed(f"the peer does not speak Kafka's protocol: {error}") from error

    def _complete(self, frame: memoryview) -> tuple[T, Any]:
        if not self.in_flight:
            raise ConnectionFailed(f"a response of {len(frame)} bytes, but no request is in flight")
        request = self.in_flight[0]
        header, position = request.exchange.response_header.decode_from(frame)
        if header.correlation_id != request.correlation_id:
            raise ConnectionFailed(
                f"a response with correlation id {header.correlation_id}, expected {request.correlation_id}"
            )
        response_codec = request.exchange.response
        if response_codec.cls is ApiVersionsResponse and _is_unsupported_version(frame, position):
            # a broker that does not know this ApiVersions version responds with version 0 (T2, KIP-511)
            response_codec = codec(ApiVersionsResponse, 0)
        response = response_codec.decode(frame, position)
        self.in_flight.popleft()
        return request.waiter, response


def _is_unsupported_version(frame: memoryview, position: int) -> bool:
    size = ERROR_CODE.size
    return frame[position : position + size] == ERROR_CODE.pack(ErrorCode.UNSUPPORTED_VERSION)
