"""A raw Kafka client for load: it sends prepared requests over one blocking socket, without a client library.

The client uses little CPU itself, so that the broker is measured.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any

from oncelog_protocol.api import ApiKey, request_header_version, request_type, response_header_version, response_type
from oncelog_protocol.codec import codec
from oncelog_protocol.messages.headers import RequestHeader, ResponseHeader
from oncelog_protocol.wire_writers import Buffer

SIZE = Struct(">i")


class RawClient:
    """One connection. `call` sends a request and waits for the response; `pipeline` keeps at most `window` prepared
    requests in flight.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pending = bytearray()

    def close(self) -> None:
        self.socket.close()

    def call(self, request: Any, api: ApiKey, version: int) -> Any:
        self.socket.sendall(prepared(request, api, version))
        return decoded(self.read_frame(), api, version)

    def pipeline(self, request: Buffer, count: int, window: int) -> Iterator[bytes]:
        """Send `request` `count` times with at most `window` in flight; yield the frames of the responses."""
        sent = answered = 0
        burst = bytes(request) * window
        size = len(request)
        while answered < count:
            room = min(window - (sent - answered), count - sent)
            if room > window // 2 or sent == count - room:
                self.socket.sendall(memoryview(burst)[: room * size])
                sent += room
            yield self.read_frame()
            answered += 1

    def pipeline_all(self, requests: Sequence[bytes], window: int) -> Iterator[bytes]:
        """Send each of `requests` with at most `window` in flight; yield the frames of the responses."""
        sent = answered = 0
        while answered < len(requests):
            room = min(window - (sent - answered), len(requests) - sent)
            if room > window // 2 or (room and sent == len(requests) - room):
                self.socket.sendall(b"".join(requests[sent : sent + room]))
                sent += room
            yield self.read_frame()
            answered += 1

    def read_frame(self) -> bytes:
        pending = self._pending
        while len(pending) < 4:
            self._receive()
        (size,) = SIZE.unpack_from(pending)
        while len(pending) < 4 + size:
            self._receive()
        frame = bytes(pending[4 : 4 + size])
        del pending[: 4 + size]
        return frame

    def receive_frames(self) -> list[bytes]:
        """Return the frames that are complete after one receive, for programs that wait for many sockets."""
        self._receive()
        pending, frames = self._pending, []
        while len(pending) >= 4:
            (size,) = SIZE.unpack_from(pending)
            if len(pending) < 4 + size:
                break
            frames.append(bytes(pending[4 : 4 + size]))
            del pending[: 4 + size]
        return frames

    def skip_frame(self, scratch: memoryview) -> int:
        """Read one response into `scratch`, drop it, and return its size in bytes. Reading into `scratch` touches no
        new memory, even for large fetches.
        """
        self._receive_exactly(scratch[:4])
        (size,) = SIZE.unpack_from(scratch)
        self._receive_exactly(scratch[:size])
        return int(size)

    def _receive_exactly(self, view: memoryview) -> None:
        while len(view):
            got = self.socket.recv_into(view)
            if not got:
                raise ConnectionError("the broker closed the connection")
            view = view[got:]

    def _receive(self) -> None:
        data = self.socket.recv(262_144)
        if not data:
            raise ConnectionError("the broker closed the connection")
        self._pending += data


def prepared(request: Any, api: ApiKey, version: int) -> bytes:
    """Return the complete frame of a request."""
    header = RequestHeader(
        request_api_key=api, request_api_version=version, correlation_id=1, client_id="oncelog-bench"
    )
    body = codec(RequestHeader, request_header_version(api, version)).encode(header)
    body += codec(request_type(api), version).encode(request)
    return SIZE.pack(len(body)) + body


def decoded(frame: bytes, api: ApiKey, version: int) -> Any:
    """Return the parsed response in a frame."""
    _, position = codec(ResponseHeader, response_header_version(api, version)).decode_from(frame)
    return codec(response_type(api), version).decode(frame, position)
