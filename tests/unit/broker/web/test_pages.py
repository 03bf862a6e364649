"""HTTP responses over real connections; misbehaving clients keep no resource for long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.config.http_keys import HttpAddress, http_address
from oncelog_broker.runtime.network import RealNetwork
from oncelog_broker.web import bounded
from oncelog_broker.web.health import Readiness
from oncelog_broker.web.http_listener import HttpListener
from oncelog_broker.web.pages import Pages

LARGE = [b"x" * 65536] * 400
"""More bytes than the operating system buffers for a client that does not read."""


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send a request; return the status, headers and body of the response."""
        self.writer.write(request)
        return await self.answer(is_head=request.startswith(b"HEAD"))

    async def answer(self, *, is_head: bool = False) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = b"" if is_head else await self.reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, body

    async def is_cut(self) -> bool:
        """Wait until the other side has closed the connection, whatever it sends before."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass
        return True


class Site:
    """A listener with pages, and clients of the listener."""

    def __init__(self, listener: HttpListener, readiness: Readiness, scraper: Any) -> None:
        self.listener = listener
        self.readiness = readiness
        self.scraper = scraper
        self.clients: list[Client] = []

    async def client(self) -> Client:
        client = Client(*await asyncio.open_connection(*self.listener.address))
        self.clients.append(client)
        return client


@asynccontextmanager
async def site(text: list[bytes] | None = None) -> AsyncIterator[Site]:
    async def told() -> list[bytes] | None:
        return text

    readiness, scraper = Readiness(doing=None), SimpleNamespace(text=told)
    pages = Pages(1, readiness, scraper, lambda: 1_700_000_000_000)  # type: ignore[arg-type]
    made = Site(await HttpListener.open(HttpAddress("127.0.0.1", 0), pages, RealNetwork()), readiness, scraper)
    try:
        async with asyncio.timeout(60):
            yield made
    finally:
        await made.listener.close()
        for client in made.clients:
            client.writer.close()


GET = b"GET %s HTTP/1.1\r\nHost: here\r\n\r\n"


async def test_a_connection_serves_many_requests() -> None:
    async with site([b"a 1\n", b"b 2\n"]) as here:
        client = await here.client()
        for _ in range(3):
            status, headers, body = await client.ask(GET % b"/metrics")
            assert (status, body) == (200, b"a 1\nb 2\n")
            assert headers["content-type"].startswith("text/plain; version=0.0.4")
        assert (await client.ask(b"HEAD /metrics HTTP/1.1\r\nHost: here\r\n\r\n"))[0] == 200
        assert (await client.ask(GET % b"/health/live?now"))[0] == 200
        assert (await client.ask(GET % b"/"))[0] == 404


async def test_a_broker_that_is_not_ready_says_why() -> None:
    async with site() as here:
        client = await here.client()
        assert (await client.ask(GET % b"/metrics"))[0] == 503
        here.readiness.doing = "logs are loaded"
        status, headers, body = await client.ask(GET % b"/health/ready")
        assert (status, headers["content-type"]) == (503, "application/json")
        assert json.loads(body)["reasons"] == ["logs are loaded"]
        here.readiness.doing = None
        here.readiness.conditions += [lambda: None, lambda: "one", lambda: "two"]
        assert json.loads((await client.ask(GET % b"/health/ready"))[2])["reasons"] == ["one", "two"]
        here.readiness.conditions.clear()
        assert (await client.ask(GET % b"/health/ready"))[0] == 200


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nHost: here\r\nContent-Length: 999999999\r\n\r\nx", 405),
        (b"GET /metrics HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nxxxxx\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: here\r\nX: " + b"x" * (1 << 20) + b"\r\n\r\n", 400),
    ],
    ids=["a body", "chunks", "no HTTP", "a long head"],
)
async def test_an_unsupported_request_ends_the_connection(request_: bytes, status: int) -> None:
    async with site([b""]) as here:
        client = await here.client()
        client.writer.write(request_)
        assert (await client.reader.readline()).split()[1] == b"%d" % status
        assert await client.is_cut()


async def test_a_client_that_sends_no_whole_request_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "EXCHANGE_SECONDS", 0.2)
    async with site() as here:
        silent, half = await here.client(), await here.client()
        half.writer.write(b"GET / HTTP/1.1\r\nX: ")
        assert await silent.is_cut()
        assert await half.is_cut()


async def test_a_client_that_does_not_read_the_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "EXCHANGE_SECONDS", 0.5)
    async with site(LARGE) as here:
        client = await here.client()
        client.writer.write(GET % b"/metrics")
        while len(here.listener.connections):  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        received = 0
        with pytest.raises(ConnectionError):
            while part := await client.reader.read(1 << 16):
                received += len(part)
            raise ConnectionResetError
        assert received < sum(map(len, LARGE))


async def test_a_connection_beyond_the_limit_replaces_the_longest_idle_one() -> None:
    async with site() as here:
        clients = [await here.client() for _ in range(bounded.MAX_CONNECTIONS)]
        for client in clients:
            assert (await client.ask(GET % b"/health/live"))[0] == 200
        assert (await clients[0].ask(GET % b"/health/live"))[0] == 200
        late = await here.client()
        assert (await late.ask(GET % b"/health/live"))[0] == 200
        assert await clients[1].is_cut()
        assert (await clients[0].ask(GET % b"/health/live"))[0] == 200
        assert len(here.listener.connections) == bounded.MAX_CONNECTIONS


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with site([b"text"]) as here:
        client = await here.client()
        client.writer.write((GET % b"/metrics") + (GET % b"/") + (GET % b"/health/live"))
        assert [(await client.answer())[0] for _ in range(3)] == [200, 404, 200]


async def test_an_address_that_is_taken_is_refused_with_what_to_do() -> None:
    async with site() as here:
        with pytest.raises(
            OSError, match=rf"cannot listen on 127.0.0.1:{here.listener.address.port}: .* `http.listener`"
        ):
            await HttpListener.open(here.listener.address, None, RealNetwork())


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9404", "127.0.0.1:9404"),
        (":0", "127.0.0.1:0"),
        ("0.0.0.0:80", "0.0.0.0:80"),
        ("[::1]:80", "[::1]:80"),
        ("metrics.example:65535", "metrics.example:65535"),
    ],
)
def test_an_address_without_a_host_is_loopback(text: str, address: str) -> None:
    assert str(http_address(text)) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:65536", "http://host:80", "a:b:80", "host:80/x"])
def test_a_malformed_http_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"http\.listener"):
        http_address(text)


@pytest.mark.parametrize(
    ("host", "is_on_loopback", "expected"),
    [
        ("localhost:9404", True, 200),
        ("127.0.0.1:9404", True, 200),
        ("[::1]:9404", True, 200),
        ("evil.example", True, 421),
        ("localhost.evil.example:9404", True, 421),
        ("[::1", True, 421),
        ("", True, 421),
        (None, True, 200),
        ("broker-1.example:9404", False, 200),
    ],
)
@pytest.mark.parametrize("path", ["/health/live", "/metrics"])
async def test_on_loopback_a_request_for_a_foreign_host_name_is_refused(
    host: str | None, is_on_loopback: bool, expected: int, path: str
) -> None:
    """A page of evil.example, whose name now resolves to 127.0.0.1 (DNS rebinding), must not read anything."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    class Text:
        async def text(self) -> list[bytes]:
            return [b"secret"]

    pages = Pages(1, Readiness(), Text(), lambda: 0, is_on_loopback=is_on_loopback)  # type: ignore[arg-type]
    headers = [] if host is None else [(b"host", host.encode())]
    await pages({"type": "http", "method": "GET", "path": path, "headers": headers}, None, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == (expected if path == "/metrics" else 200), "health tells nobody anything"
    assert (b"secret" in b"".join(message.get("body", b"") for message in sent)) is (
        expected == 200 and path == "/metrics"
    )
