"""A broker's connection without a socket: a test sees the client's bytes, the broker's bytes, and the dispatched
requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import pack
from typing import Any

from oncelog_broker.runtime.loop_budget import LoopBudget
from oncelog_broker.server.net.answer_queue import Slot
from oncelog_broker.server.net.connection import MEMORY_RETRY_SECONDS, BrokerConnection
from oncelog_broker.server.net.connections import Connections
from oncelog_broker.server.net.limits import (
    Limits,
)


class RecordingTransport(asyncio.Transport):
    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__({"peername": (host, 5000)})
        self.written: list[bytes] = []
        self.aborted = False
        self.closed = False
        self.paused = False
        self.unsent = 0
        self.on_write: Callable[[], None] = lambda: None

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))
        self.on_write()

    def writelines(self, list_of_data: Any) -> None:
        self.written.append(b"".join(list_of_data))
        self.on_write()

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return self.aborted or self.closed

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closed = True


class RecordingDispatcher:
    """Dispatches the frames of a connection in place of a broker's handlers, and keeps a copy of each frame. The first
    byte of a frame says how the request behaves: `M` waits and blocks later
    requests; `L` does so, too, and is a long poll, which waits for other clients; `O` waits and lets later requests
    run; `U` is decoded first, and is a long poll if it ends with `L`; `A` gets its own bytes as the response. Other
    requests get no response.
    """

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.last_frame = memoryview(b"")
        self.waiting: list[tuple[Slot, asyncio.Future[None]]] = []

    def handle(self, connection: BrokerConnection, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self.last_frame = frame
        first = frame[0:1]
        if first == b"A":
            connection.respond([bytes(frame)])
        elif first in (b"M", b"L", b"O", b"U"):
            answer = asyncio.get_running_loop().create_future()
            slot = connection.wait_for(
                answer,
                reads_frame=first in (b"M", b"U"),
                holds_back=first != b"O",
                is_long_poll=first == b"L" or (first == b"U" and frame[-1:] == b"L"),
                is_unread=first == b"U",
            )
            answer.add_done_callback(lambda answer: connection.cancelled(slot) if answer.cancelled() else None)
            self.waiting.append((slot, answer))


def limits(**changes: Any) -> Limits:
    values: dict[str, Any] = {
        "max_connections": 10,
        "max_connections_per_ip": 10,
        "request_max_bytes": 1_000_000,
        "queued_max_request_bytes": -1,
        "queued_max_response_bytes": -1,
        "idle_seconds": 600.0,
    }
    return Limits(**{**values, **changes})


class Wire:
    """A connection together with both of its ends."""

    def __init__(self, **changes: Any) -> None:
        self.limits = limits(**changes)
        self.dispatcher = RecordingDispatcher()
        self.turn_seconds = 0.0
        self.write_seconds = 0.0
        """Simulated duration of one write by the transport, as a fraction of a turn of the event loop (1.0)."""
        self.connections = Connections(self.limits, LoopBudget(lambda: self.turn_seconds, 1.0))
        self.connection, self.transport = self.connect()

    def connect(self, gate: Any = None) -> tuple[BrokerConnection, RecordingTransport]:
        """Connect a client; return the connection and its transport. `gate` is the login gate for clients that have not
        authenticated yet.
        """
        connection = BrokerConnection(self.dispatcher.handle, self.connections, "PLAINTEXT", gate=gate)
        transport = RecordingTransport()
        transport.on_write = self._on_write
        connection.connection_made(transport)
        return connection, transport

    def _on_write(self) -> None:
        self.turn_seconds += self.write_seconds

    def receive(self, data: bytes) -> int:
        """Deliver as many bytes of `data` as the connection reads, as a socket would. Returns the number of accepted
        bytes.
        """
        taken = 0
        while taken < len(data) and not self.transport.paused and not self.transport.aborted:
            buffer = self.connection.get_buffer(-1)
            assert len(buffer) > 0
            size = min(len(buffer), len(data) - taken)
            buffer[:size] = data[taken : taken + size]
            taken += size
            self.connection.buffer_updated(size)
        return taken

    def finish(self, number: int = 0, answer: bytes = b"") -> None:
        """Send the response to a request that was dispatched and waits."""
        slot, _ = self.dispatcher.waiting.pop(number)
        if answer:
            self.connection.respond([answer], slot)
        self.connection.finish(slot)


def frame(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true. The wait polls, because connections that wait for memory retry only every
    MEMORY_RETRY_SECONDS.
    """
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(MEMORY_RETRY_SECONDS)


def unread(wire: Wire, size: int) -> None:
    """Send `size` bytes to the client, which does not read any of them."""
    wire.connection.respond([b"x" * size])
    wire.transport.unsent = size
    wire.connection.pause_writing()
