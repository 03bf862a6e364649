"""On HTTP connections of broker and console, the size of request heads is limited, and a client that does not finish
its request blocks no other client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
from uvicorn.server import ServerState

from oncelog.http_bounds import MAX_HEAD_BYTES, SLICE_BYTES, BoundedConnection, HttpConnections
from oncelog_broker.web.bounded import BoundedHttp, http_config
from oncelog_console.serving import FewConnections

PATIENCE_SECONDS = 60
LIMIT = 4
HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = HALF + b"Connection: close\r\n\r\n"
BOTH = pytest.mark.parametrize("kind", [BoundedHttp, FewConnections])

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Site:
    """Responds to /held when the test says so, and to everything else immediately."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.asked = asyncio.Semaphore(0)
        self.port = 0
        self.open = HttpConnections(LIMIT)
        self._stack = AsyncExitStack()

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        self.asked.release()
        if scope["path"] == "/held":
            await self.goes_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def connect(self, data: bytes = b"") -> Ends:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._stack.callback(writer.close)
        writer.write(data)
        return reader, writer

    @asynccontextmanager
    async def serving(self, kind: type[BoundedConnection]) -> AsyncIterator[None]:
        factory: Any = partial(kind, http_config(self), ServerState(), connections=self.open)
        server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server, self._stack:
            yield
            self.goes_on.set()
            self.open.close()


async def status(ends: Ends) -> bytes:
    """Return the status code of the response; empty if the connection was closed."""
    try:
        line = await asyncio.wait_for(ends[0].readline(), PATIENCE_SECONDS)
    except ConnectionResetError:
        return b""
    return line.split(b" ")[1] if line else b""


@BOTH
@pytest.mark.parametrize(
    ("head_bytes", "expected"),
    [
        (MAX_HEAD_BYTES - 100, {b"200"}),
        (MAX_HEAD_BYTES + 2 * SLICE_BYTES, {b"400"}),
        (100_000, {b"400", b""}),  # bytes were left unread, so the system resets the connection
        (200_000, {b"400", b""}),
    ],
)
@pytest.mark.parametrize("pieces", [1, 7])
async def test_a_head_has_a_bound_however_it_comes(
    kind: type[BoundedConnection], head_bytes: int, expected: set[bytes], pieces: int
) -> None:
    site = Site()
    head = HALF + b"X: " + b"a" * (head_bytes - len(HALF) - 7) + b"\r\n\r\n"
    assert len(head) == head_bytes
    async with site.serving(kind):
        ends = await site.connect()
        size = -(-head_bytes // pieces)
        for start in range(0, head_bytes, size):
            if ends[1].is_closing():  # the response has arrived together with a reset; uvloop raises if more is written
                break
            ends[1].write(head[start : start + size])
            await asyncio.sleep(0)
        assert await status(ends) in expected


@BOTH
async def test_a_second_request_of_a_connection_has_the_bound_too(kind: type[BoundedConnection]) -> None:
    site = Site()
    async with site.serving(kind):
        ends = await site.connect(HALF + b"\r\n" + HALF + b"X: " + b"a" * 100_000 + b"\r\n\r\n")
        assert await status(ends) == b"200"
        assert await asyncio.wait_for(site.asked.acquire(), PATIENCE_SECONDS)
        ends[1].write(WHOLE)
        with suppress(ConnectionResetError):
            rest = await asyncio.wait_for(ends[0].read(), PATIENCE_SECONDS)
            assert b"HTTP/1.1 200" not in rest
        assert site.asked.locked()


@BOTH
async def test_requests_that_come_together_are_all_answered(kind: type[BoundedConnection]) -> None:
    site = Site()
    async with site.serving(kind):
        ends = await site.connect((HALF + b"\r\n") * 50 + WHOLE)
        rest = await asyncio.wait_for(ends[0].read(), PATIENCE_SECONDS)
        assert rest.count(b"HTTP/1.1 200") == 51


@BOTH
async def test_half_sent_requests_keep_nobody_out(kind: type[BoundedConnection]) -> None:
    site = Site()
    async with site.serving(kind):
        slow = [await site.connect(HALF) for _ in range(3 * LIMIT)]
        for _ in range(3):
            assert await status(await site.connect(WHOLE)) == b"200"
        assert await status(slow[0]) == b"", "who has waited longest gives its place"
        assert len(site.open) <= LIMIT


@BOTH
async def test_a_request_that_is_being_answered_keeps_its_place(kind: type[BoundedConnection]) -> None:
    site = Site()
    async with site.serving(kind):
        held = await site.connect(WHOLE.replace(b"GET /", b"GET /held"))
        await site.asked.acquire()
        for _ in range(3 * LIMIT):
            await site.connect(HALF)
        assert await status(await site.connect(WHOLE)) == b"200"
        site.goes_on.set()
        assert await status(held) == b"200"


@BOTH
async def test_answers_that_nobody_reads_keep_nobody_out_either(kind: type[BoundedConnection]) -> None:
    site = Site()
    async with site.serving(kind):
        held = []
        for _ in range(LIMIT):
            held.append(await site.connect(WHOLE.replace(b"GET /", b"GET /held")))
            await site.asked.acquire()
        assert await status(await site.connect(WHOLE)) == b"200"
        assert await status(held[0]) == b""
        site.goes_on.set()
        assert await status(held[1]) == b"200"
