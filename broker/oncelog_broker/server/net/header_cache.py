"""Request headers, decoded once per connection: the client's id is nearly always that of the request before."""

from __future__ import annotations

from struct import Struct
from typing import Final

from oncelog_protocol.codec import MessageCodec
from oncelog_protocol.messages.headers import RequestHeader

PREFIX: Final = Struct(">hhi")
"""API key, version, correlation id: how every request header begins."""
KEPT_HEADER_BYTES: Final = 1024
"""A header behind the PREFIX that is larger is decoded each time: what a connection keeps is bounded."""
MAX_HEADER_TAGS: Final = 100
"""Tagged fields in one header. Kafka defines none, so all of them are passed over."""


class CachedHeader:
    """What a connection's last request had in its header behind the PREFIX: comparing bytes saves decoding them."""

    __slots__ = ("client_id", "route_header", "tail")

    def __init__(self, route_header: MessageCodec[RequestHeader] | None, tail: bytes, client_id: str | None) -> None:
        self.route_header = route_header
        self.tail = tail
        self.client_id = client_id

    @classmethod
    def read(cls, route_header: MessageCodec[RequestHeader], frame: memoryview) -> tuple[CachedHeader, int, str | None]:
        """Decode the header of `frame`: what to keep of it, where the body begins, the client's id.

        Raises MalformedMessage.
        """
        header, position = route_header.decode_from(frame, max_elements=MAX_HEADER_TAGS)
        if position - PREFIX.size > KEPT_HEADER_BYTES:
            return NO_HEADER, position, header.client_id
        return cls(route_header, bytes(frame[PREFIX.size : position]), header.client_id), position, header.client_id


NO_HEADER: Final = CachedHeader(None, b"", None)
"""The cached header of a connection that has sent nothing yet, or whose header is too large to be kept."""
