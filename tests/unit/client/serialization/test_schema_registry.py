"""The client of a schema registry against servers that are slow, send endless or wrong responses, or are down; its
caches, and its fail-over.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from oncelog.errors import ConfigError
from oncelog.serialization import (
    Reference,
    RegistryRefused,
    RegistryUnavailable,
    Schema,
    SchemaNotFound,
    SchemaRegistry,
    SchemaRegistryError,
    SerializationError,
    registry_http,
)
from oncelog.serialization.errors import shown_url
from oncelog.serialization.registry_http import MAX_ANSWER_BYTES

ANSWERS = {
    "GET /schemas/ids/1": (200, {"schema": '"int"'}),
    "GET /schemas/ids/9": (404, {"error_code": 40403, "message": "Schema 9 not found"}),
    "GET /schemas/ids/8": (200, {"text": "none"}),
    "POST /subjects/a%2Fb/versions": (200, {"id": 1}),
    "POST /subjects/bad/versions": (409, {"error_code": 409, "message": "incompatible"}),
    "GET /subjects/a/versions/latest": (200, {"subject": "a", "version": 2, "id": 1, "schema": '"int"'}),
    "GET /subjects/a/versions/1": (
        200,
        {
            "subject": "a",
            "version": 1,
            "id": 3,
            "schema": '"int"',
            "references": [{"name": "a", "subject": "a", "version": 1}],
        },
    ),
}


class Server:
    """An HTTP server that responds with entries of ANSWERS, or with what `reply` returns; `asked` lists the received
    requests.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.reply: Callable[[], bytes | None] | None = None
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := (await reader.readline()).decode():
                headers = {}
                while (header := (await reader.readline()).decode().strip()) != "":
                    name, _, value = header.partition(":")
                    headers[name.lower()] = value.strip()
                await reader.readexactly(int(headers.get("content-length", 0)))
                asked = " ".join(line.split()[:2])
                self.asked.append(asked)
                self.headers.append(headers)
                raw = None if self.reply is None else self.reply()
                writer.write(answer(*ANSWERS.get(asked, (404, {}))) if raw is None else raw)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def answer(status: int, document: Any) -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


@pytest.fixture(autouse=True)
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_http, "BACKOFF_SECONDS", 0.0)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server
        listening.close()


@pytest.fixture
async def registry(server: Server) -> AsyncIterator[SchemaRegistry]:
    async with SchemaRegistry(server.url) as registry:
        yield registry


async def test_a_schema_is_asked_for_once(server: Server, registry: SchemaRegistry) -> None:
    found = await asyncio.gather(*(registry.schema(1) for _ in range(50)))
    assert set(found) == {Schema('"int"')}
    assert await registry.schema(1) == Schema('"int"')
    assert server.asked == ["GET /schemas/ids/1"]


async def test_an_unknown_id_is_asked_for_once(server: Server, registry: SchemaRegistry) -> None:
    for _ in range(3):
        with pytest.raises(SchemaNotFound, match="Schema 9 not found") as raised:
            await registry.schema(9)
        assert (raised.value.status, raised.value.error_code) == (404, 40403)
    assert len(server.asked) == 1


async def test_the_subject_is_quoted_and_registering_is_cached(server: Server, registry: SchemaRegistry) -> None:
    assert [await registry.register("a/b", Schema('"int"')) for _ in range(2)] == [1, 1]
    assert server.asked == ["POST /subjects/a%2Fb/versions"]


async def test_a_schema_that_is_refused_is_not_sent_again(server: Server, registry: SchemaRegistry) -> None:
    with pytest.raises(RegistryRefused, match="incompatible") as raised:
        await registry.register("bad", Schema('"int"'))
    assert raised.value.status == 409
    assert len(server.asked) == 1


async def test_the_latest_version_is_looked_up_again_after_its_time(server: Server) -> None:
    async with SchemaRegistry(server.url, latest_ttl_s=0) as registry:
        assert [(await registry.version("a")).version for _ in range(2)] == [2, 2]
    assert len(server.asked) == 2


async def test_schemas_that_refer_to_each_other_are_each_read_once(server: Server, registry: SchemaRegistry) -> None:
    schema = Schema('"int"', references=(Reference("x", "a", 1),))
    assert list(await registry.referred(schema)) == ["a", "x"]
    assert server.asked == ["GET /subjects/a/versions/1"]


async def test_a_schema_with_too_many_references_is_refused(registry: SchemaRegistry) -> None:
    schema = Schema('"int"', references=tuple(Reference(f"x{number}", "a", 1) for number in range(200)))
    with pytest.raises(SerializationError, match="more than 100"):
        await registry.referred(schema)


async def test_two_references_of_one_name_are_refused(registry: SchemaRegistry) -> None:
    schema = Schema('"int"', references=(Reference("x", "a", 1), Reference("x", "a", 2)))
    with pytest.raises(SerializationError, match="two schemas are referred to as 'x'"):
        await registry.referred(schema)


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 x\r\nContent-Length: 5\r\n\r\n<html",
        b"HTTP/1.1 302 x\r\nLocation: /\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 503 x\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 x\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        b"not HTTP\r\n\r\n",
        b"HTTP/1.1 200 x\r\nContent-Length: %d\r\n\r\n" % (MAX_ANSWER_BYTES + 1) + b" " * (MAX_ANSWER_BYTES + 1),
    ],
    ids=["html", "redirect", "503", "compressed", "no-http", "too-long"],
)
async def test_an_answer_that_is_none_of_a_registry_is_retried_and_told(server: Server, reply: bytes) -> None:
    server.reply = lambda: reply
    async with SchemaRegistry(server.url) as registry:
        with pytest.raises(RegistryUnavailable, match=server.url) as raised:
            await registry.schema(1)
    assert raised.value.retriable
    assert len(server.asked) == 3


async def test_an_answer_without_a_schema_is_told(registry: SchemaRegistry) -> None:
    with pytest.raises(RegistryUnavailable, match="not a schema"):
        await registry.schema(8)


async def test_an_endless_answer_ends_with_the_timeout(server: Server) -> None:
    server.reply = lambda: b"HTTP/1.1 200 x\r\nContent-Length: 100\r\n\r\n{"
    async with SchemaRegistry(server.url, timeout_s=0.05) as registry:
        with pytest.raises(RegistryUnavailable, match=r"0\.05 s|does not answer"):
            await registry.schema(1)


async def test_the_next_url_is_asked_where_the_first_does_not_answer(server: Server) -> None:
    async with SchemaRegistry(f"http://127.0.0.1:1, {server.url}/") as registry:
        assert await registry.schema(1) == Schema('"int"')


async def test_a_registry_that_is_away_is_named(server: Server) -> None:
    async with SchemaRegistry("http://127.0.0.1:1") as registry:
        with pytest.raises(SchemaRegistryError, match=r"http://127\.0\.0\.1:1/schemas/ids/1"):
            await registry.schema(1)


async def test_the_login_is_sent(server: Server) -> None:
    async with SchemaRegistry(server.url, auth=("user", "secret")) as registry:
        await registry.schema(1)
    async with SchemaRegistry(server.url, token=lambda: "abc") as registry:
        await registry.schema(1)
    assert [headers["authorization"] for headers in server.headers] == ["Basic dXNlcjpzZWNyZXQ=", "Bearer abc"]
    assert server.headers[0]["accept-encoding"] == "identity"


@pytest.mark.parametrize("urls", ["", "localhost:8081", [], "ftp://a"])
def test_an_address_that_is_no_url_is_refused(urls: Any) -> None:
    with pytest.raises(ConfigError):
        SchemaRegistry(urls)


async def test_closing_ends_the_requests_that_wait(server: Server) -> None:
    asked = asyncio.Event()

    def reply() -> bytes:
        asked.set()
        return b"HTTP/1.1 200 x\r\nContent-Length: 100\r\n\r\n{"

    server.reply = reply
    registry = SchemaRegistry(server.url)
    waiting = asyncio.ensure_future(registry.schema(1))
    await asked.wait()
    await registry.close()
    with pytest.raises(RegistryUnavailable):
        await waiting


async def test_a_user_and_a_password_in_a_url_are_sent_to_it_alone_and_no_message_has_them(server: Server) -> None:
    mine, other = server.url.replace("://", "://robot:hunter%2F2@"), server.url.replace("127.0.0.1", "localhost")
    async with SchemaRegistry(f"{mine},{other}") as registry:
        with pytest.raises(SchemaNotFound) as unknown:
            await registry.schema(9)
        assert server.headers[-1]["authorization"] == "Basic " + b64encode(b"robot:hunter/2").decode()
        server.reply = lambda: answer(500, {})
        with pytest.raises(RegistryUnavailable) as failed:
            await registry.schema(1)
        assert "authorization" not in server.headers[-1]
    assert not any("hunter" in str(error.value) for error in (unknown, failed))


@pytest.mark.parametrize("url", ["ftp://robot:hunter2@there", "http://robot:hunter2@there:port", "robot:hunter2@there"])
def test_a_wrong_url_is_named_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SchemaRegistry(url)
    assert "there" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("urls", "shown"),
    [
        ("http://a:8081", "http://a:8081"),
        ("http://robot:hunter2@a,https://robot:hunter2@b", "http://a,https://b"),
        ("http://robot:hunter2://@a", "http://a"),
        ("robot:hunter2@a", "a"),
    ],
)
def test_urls_are_shown_without_their_users(urls: str, shown: str) -> None:
    assert shown_url(urls) == shown
