"""Caches each connection's last request header: the client id is nearly always the same as in the previous request."""

from __future__ import annotations

from struct import Struct
from typing import Final

from oncelog_protocol.codec import MessageCodec
from oncelog_protocol.messages.headers import RequestHeader

PREFIX: Final = Struct(">hhi")
"""API key, version and correlation id, the first fields of every request header."""
KEPT_HEADER_BYTES: Final = 1024
"""The maximum number of bytes of a header behind the PREFIX. A longer header is not cached, so that the memory of a
connection is bounded.
"""
MAX_HEADER_TAGS: Final = 100
"""Limit on the tagged fields in one header. Kafka defines no tagged fields of request headers, so all of them are
skipped.
"""


class CachedHeader:
    """The bytes behind the PREFIX of a connection's last request header; if the next header has the same bytes,
    decoding is not necessary.
    """

    __slots__ = ("client_id", "route_header", "tail")

    def __init__(self, route_header: MessageCodec[RequestHeader] | None, tail: bytes, client_id: str | None) -> None:
        self.route_header = route_header
        self.tail = tail
        self.client_id = client_id

    @classmethod
    def read(cls, route_header: MessageCodec[RequestHeader], frame: memoryview) -> tuple[CachedHeader, int, str | None]:
        """Decode the header of `frame`; returns the header to cache, the position of the body, and the client id.

        Raises MalformedMessage.
        """
        header, position = route_header.decode_from(frame, max_elements=MAX_HEADER_TAGS)
        if position - PREFIX.size > KEPT_HEADER_BYTES:
            return NO_HEADER, position, header.client_id
        return cls(route_header, bytes(frame[PREFIX.size : position]), header.client_id), position, header.client_id


NO_HEADER: Final = CachedHeader(None, b"", None)
"""Placeholder for the cached header of a connection that has sent no request, or whose last header was too large to
cache.
"""
