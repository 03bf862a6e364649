"""A login at an identity provider that may respond with anything: each response leads to a login, or to the error
LoginFailed with a reason.
The provider is a real HTTP server on the loop of the test; test_console_login.py tests an entire login.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from starlette.requests import Request

from oncelog_console.limits import MAX_PROVIDER_BYTES
from oncelog_console.login.oidc import LoginFailed, OidcLogin, OidcSettings, Provider

NOW = 1_000_000.0


class FakeProvider:
    """Responds to each path with the bytes in `bodies`, and with the headers in `headers`."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: dict[str, bytes] = {}
        self.headers = ""

    def say(self, path: str, document: Any) -> None:
        self.bodies[path] = json.dumps(document).encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).decode().split()[1]
            body = self.bodies[path]
            head = f"HTTP/1.1 200 X\r\nContent-Type: application/json\r\nConnection: close\r\n{self.headers}"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeProvider]:
    fake = FakeProvider()
    async with await asyncio.start_server(fake.serve, "127.0.0.1", 0) as server:
        fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        fake.say(
            "/.well-known/openid-configuration",
            {
                "issuer": fake.url,
                "authorization_endpoint": f"{fake.url}/authorize",
                "token_endpoint": f"{fake.url}/token",
                "jwks_uri": f"{fake.url}/jwks",
            },
        )
        yield fake
        server.close()


def provider_at(fake: FakeProvider, shown: str = "access_token") -> Provider:
    settings = OidcSettings(fake.url, "console", None, "https://console.example.com", shown_token=shown)
    return Provider(settings, lambda: NOW)


def login_at(provider: Provider) -> OidcLogin:
    """Return a login whose tokens have expired, but which has a token to refresh them."""
    token = {"access_token": "a", "id_token": "i", "refresh_token": "r", "expires_at": NOW - 1}
    return OidcLogin(provider, "alice", {**token, "userinfo": {"sub": "alice"}})


async def test_a_token_is_replaced_while_the_login_lasts(fake: FakeProvider) -> None:
    fake.say("/token", {"access_token": "b", "token_type": "Bearer", "expires_at": int(NOW) + 600})
    login = login_at(provider_at(fake))
    assert await login.is_valid()
    assert login.token() == "b"


@pytest.mark.parametrize(
    "said",
    [
        b'{"access_token": "b", "expires_at": "soon"}',
        b'{"access_token": "b", "expires_at": []}',
        b'{"access_token": "b", "expires_in": [1]}',
        b'{"access_token": "b", "expires_at": NaN}',
        b'{"access_token": "b", "expires_at": 1' + b"0" * 400 + b"}",
        b'{"access_token": 7}',
        b'{"access_token": "b", "id_token": "x.y.z"}',
        b'{"access_token": "b", "userinfo": {"sub": "root"}, "id_token": 7}',
        b"[]",
        b"<html>",
    ],
    ids=["word", "list", "span", "nan", "huge", "no text", "bad id token", "own claims", "list of all", "html"],
)
async def test_a_replacement_that_cannot_be_used_ends_the_login(fake: FakeProvider, said: bytes) -> None:
    fake.bodies["/token"] = said
    assert not await login_at(provider_at(fake)).is_valid()


async def test_a_provider_without_an_address_for_tokens_ends_the_login(fake: FakeProvider) -> None:
    fake.say("/.well-known/openid-configuration", {"issuer": fake.url})
    assert not await login_at(provider_at(fake)).is_valid()


async def test_a_login_ends_with_the_id_token_where_that_is_shown(fake: FakeProvider) -> None:
    fake.say("/token", {"access_token": "b", "token_type": "Bearer", "expires_at": int(NOW) + 600})
    assert not await login_at(provider_at(fake, "id_token")).is_valid(), "the id token was not replaced"


async def test_a_replacement_for_another_user_ends_the_login(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.say("/token", {"access_token": "b", "id_token": "of bob", "expires_at": int(NOW) + 600})
    provider = provider_at(fake)

    async def claims(token: dict[str, Any], nonce: str | None) -> dict[str, Any]:
        return {"sub": "bob"}  # as if the signature were valid

    monkeypatch.setattr(provider._client, "parse_id_token", claims)
    assert not await login_at(provider).is_valid()


@pytest.mark.parametrize("issuer", [7, None, ["x"]])
async def test_an_issuer_that_is_no_text_is_no_login(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch, issuer: Any
) -> None:
    fake.say("/.well-known/openid-configuration", {"issuer": issuer})
    provider = provider_at(fake)

    async def token(_: Request) -> dict[str, Any]:
        return {"access_token": "a", "userinfo": {"sub": "alice", "iss": issuer}}

    monkeypatch.setattr(provider._client, "authorize_access_token", token)
    with pytest.raises(LoginFailed, match="names itself otherwise"):
        await provider.login(Request({"type": "http"}))


@pytest.mark.parametrize("is_compressed", [False, True], ids=["long", "compressed"])
async def test_an_answer_of_a_provider_takes_limited_memory(fake: FakeProvider, is_compressed: bool) -> None:
    body = b'{"access_token": "b"}'
    if is_compressed:
        fake.headers = "Content-Encoding: gzip\r\n"
    else:
        body += b" " * MAX_PROVIDER_BYTES
    fake.bodies["/token"] = body
    with pytest.raises(LoginFailed, match="DecodingError"):
        await provider_at(fake).refreshed({"refresh_token": "r", "userinfo": {"sub": "alice"}})
