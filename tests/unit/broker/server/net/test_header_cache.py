"""The memory for cached request headers is limited, and so is the work for each header."""

from __future__ import annotations

import pytest

from oncelog_broker.server.net.header_cache import KEPT_HEADER_BYTES, MAX_HEADER_TAGS, NO_HEADER, PREFIX, CachedHeader
from oncelog_protocol.codec import codec
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.messages.headers import RequestHeader

HEADER = codec(RequestHeader, 2)
BODY = b"body"


def frame(client_id: bytes, tags: bytes = b"\0") -> memoryview:
    header = PREFIX.pack(18, 3, 1) + len(client_id).to_bytes(2) + client_id + tags
    return memoryview(header + BODY)


def test_a_small_header_is_kept() -> None:
    data = frame(b"a client")
    known, position, client_id = CachedHeader.read(HEADER, data)
    assert (known.client_id, client_id) == ("a client", "a client")
    assert PREFIX.size + len(known.tail) == position == len(data) - len(BODY)


@pytest.mark.parametrize(
    "data", [frame(b"c" * KEPT_HEADER_BYTES), frame(b"c", b"\x01\x05\x80\x80\x40" + b"\0" * 2**20)]
)
def test_a_large_header_is_read_but_not_kept(data: memoryview) -> None:
    known, position, client_id = CachedHeader.read(HEADER, data)
    assert known is NO_HEADER
    assert data[position:] == BODY
    assert client_id is not None and client_id.strip("c") == ""


def test_a_header_of_many_tags_is_malformed() -> None:
    tags = b"".join(bytes([number, 0]) for number in range(MAX_HEADER_TAGS + 1))
    with pytest.raises(MalformedMessage, match="tagged fields"):
        CachedHeader.read(HEADER, frame(b"c", bytes([MAX_HEADER_TAGS + 1]) + tags))
