"""The keys that sign tokens are refreshed again and again, whatever the identity provider responds (S93)."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPException
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.security.sasl import jwks as jwks_module
from oncelog_broker.security.sasl.jwks import Jwks, check_url, parse_keys
from oncelog_broker.security.sasl.timed_get import timed_get

KEY = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key()))
TINY = 0.01
"""Seconds between two reads of the keys."""


def document(key_id: str) -> bytes:
    return json.dumps({"keys": [{**KEY, "kid": key_id}]}).encode()


def http(body: bytes, length: int | None = None) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body) if length is None else length, body)


BAD = {
    "no HTTP": b"nonsense\r\n\r\n",
    "nothing": b"",
    "an answer that breaks off": http(document("k"), 100_000),
    "a broken chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a header without an end": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
    "deeply nested": http(b"[" * 500_000),
    "deeply nested within": http(b'{"keys": [' + b'{"kid":' * 100_000),
    "no JSON": http(b"<html>"),
    "not UTF-8": http(b"\xff\xfe\xfa"),
    "a list": http(b"[]"),
    "too large": http(b" " * (1024 * 1024 + 1)),
    "an error": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    "a redirect to a file": b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n",
    "a redirect to itself": b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
    "a redirect to nonsense": b"HTTP/1.1 302 Found\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n",
}


class Provider:
    """An identity provider that sends the same response to each connection, or calls the function `serve` with the
    connection.
    """

    def __init__(self) -> None:
        self.answer = b""
        self.serve: Callable[[socket.socket], None] = self._serve
        self.asked = threading.Semaphore(0)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/keys"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with closing(client):
                client.settimeout(60)
                try:
                    client.recv(65536)
                    self.serve(client)
                except OSError:
                    pass
            self.asked.release()

    def _serve(self, client: socket.socket) -> None:
        client.sendall(self.answer)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@contextmanager
def providing() -> Iterator[Provider]:
    provider = Provider()
    try:
        yield provider
    finally:
        provider.close()


async def asked(provider: Provider) -> None:
    await asyncio.to_thread(provider.asked.acquire, timeout=60)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_s93_the_keys_stay_and_are_read_again_after_any_answer(bad: bytes) -> None:
    with providing() as provider:
        keys = Jwks(provider.url, TINY)
        provider.answer = bad
        await keys.read()
        assert keys.key("k") is None, "at the start: it is logged, and the broker starts"
        provider.answer = http(document("k"))
        await keys.read()
        good = keys.key("k")
        assert good is not None
        provider.answer = bad
        following = asyncio.get_running_loop().create_task(keys.follow())
        await asked(provider)
        await asked(provider)
        await asked(provider)
        assert keys.key("k") is good
        provider.answer = http(document("new"))
        while keys.key("new") is None:
            await asked(provider)
            assert not following.done()
        assert keys.key("k") is None, "a revoked key is believed no longer"
        following.cancel()


@pytest.mark.parametrize("error", [RuntimeError, RecursionError, MemoryError, HTTPException, UnicodeError, KeyError])
async def test_s93_whatever_reading_raises_the_keys_stay(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(document("k"))
    keys = Jwks(path.as_uri(), 3600)
    await keys.read()

    def fail(_: str) -> None:
        raise error("a defect")

    monkeypatch.setattr(jwks_module, "_read_keys", fail)
    await keys.read()
    assert keys.key("k") is not None
    assert "cannot be read" in caplog.text


@pytest.mark.parametrize("where", ["headers", "body"])
def test_s93_a_provider_that_drips_holds_nobody_longer_than_one_reading_may_take(where: str) -> None:
    def drip(client: socket.socket) -> None:
        if where == "body":
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(600):
            client.sendall(b" ")
            time.sleep(0.05)

    with providing() as provider:
        provider.serve = drip
        began = time.monotonic()
        with pytest.raises(OSError):
            timed_get(provider.url, 0.5, 1000, check_url)
        assert time.monotonic() - began < 20


async def test_a_dripping_provider_is_an_error_like_any_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(jwks_module, "READ_TIMEOUT_SECONDS", 0.2)

    def stall(client: socket.socket) -> None:
        client.sendall(b"H")
        client.recv(1)  # block until the broker closes the connection

    with providing() as provider:
        provider.serve = stall
        keys = Jwks(provider.url, 3600)
        await keys.read()
    assert "cannot be read" in caplog.text


async def test_the_age_of_the_keys_is_that_of_the_last_good_answer() -> None:
    loop = asyncio.get_running_loop()
    with providing() as provider:
        keys = Jwks(provider.url, 3600)
        assert keys.age_seconds(loop.time()) == 0
        provider.answer = http(document("k"))
        await keys.read()
        read_at = loop.time()
        assert 0 <= keys.age_seconds(read_at) < 60
        provider.answer = BAD["no HTTP"]
        await keys.read()
        assert keys.age_seconds(read_at + 100) >= 100


async def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    keys = Jwks(path.as_uri(), 3600)
    await keys.read()
    path.write_bytes(document("k"))
    await keys.read()
    assert keys.key("k") is not None


def test_a_set_that_is_nested_too_deeply_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="too deeply"):
        parse_keys(b"[" * 500_000)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "[::1]", "LOCALHOST"])
def test_e56_http_is_accepted_on_loopback(host: str) -> None:
    Jwks(f"http://{host}:8080/keys", 1)


@pytest.mark.parametrize(
    "url", ["http://idp.example/keys", "http://10.0.0.1/keys", "http://localhost.example/", "ftp://idp/", "keys.json"]
)
def test_e56_http_and_bad_urls_are_refused_elsewhere(url: str) -> None:
    with pytest.raises(InvalidConfig, match="https://"):
        Jwks(url, 1)


def test_e56_a_redirect_is_held_to_the_rule_for_urls() -> None:
    """If redirects from https to http:// were followed, any host on the network could supply keys."""
    with providing() as first, providing() as second:
        first.answer = f"HTTP/1.1 302 Found\r\nLocation: {second.url}\r\nContent-Length: 0\r\n\r\n".encode()
        second.answer = http(document("a"))

        def refuse(url: str) -> None:
            assert url == second.url
            raise InvalidConfig("over http://")

        with pytest.raises(InvalidConfig, match="over http://"):
            timed_get(first.url, 30, 100_000, refuse)
        assert not second.asked.acquire(blocking=False)
        assert timed_get(first.url, 30, 100_000, check_url) == document("a")
