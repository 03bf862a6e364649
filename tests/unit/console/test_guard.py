"""Which requests the console accepts, and from which origins and addresses. The application behind the guard always
responds with 200.
"""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from oncelog_console.guard import Guard, Token, host_name

HOME = "http://localhost:8080"
OURS = {"sec-fetch-site": "same-origin", "origin": HOME}


async def behind(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("in")(scope, receive, send)


async def ask(method: str, headers: Mapping[str, str], *, changes: bool = True) -> httpx.Response:
    guard = Guard(behind, hosts=["[::1]", "console.example"], allows_changes=changes)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url=HOME) as client:
        return await client.request(method, "/", headers=headers)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:8080", "[::1]:8080", "console.example"])
async def test_the_console_is_reached_by_its_own_names(host: str) -> None:
    assert (await ask("GET", {"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8080", "", "localhost:8080:9", "x@localhost"],
)
async def test_a_foreign_host_name_that_resolves_to_us_is_refused(host: str) -> None:
    refused = await ask("GET", {"host": host})
    assert refused.status_code == 421
    assert "--allow-host" in refused.text


async def test_every_answer_says_what_a_browser_may_do_with_it() -> None:
    for answer in (await ask("GET", {}), await ask("GET", {"host": "evil.example"})):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


async def test_another_site_may_lead_here_and_embed_nothing() -> None:
    navigation = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert (await ask("GET", navigation)).status_code == 200
    assert (await ask("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"})).status_code == 403


async def test_a_change_comes_from_a_page_of_ours() -> None:
    assert (await ask("POST", OURS)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {**OURS, "origin": "http://localhost:9999"},
        {**OURS, "origin": "http://127.0.0.1:8080"},
        {**OURS, "sec-fetch-site": "cross-site"},
        {**OURS, "sec-fetch-site": "same-site"},
        {**OURS, "sec-fetch-site": "none"},
    ],
)
async def test_a_change_from_elsewhere_is_refused(headers: dict[str, str]) -> None:
    assert (await ask("POST", headers)).status_code == 403


async def test_a_read_only_console_changes_nothing() -> None:
    refused = await ask("POST", OURS, changes=False)
    assert refused.status_code == 403
    assert "--allow-changes" in refused.text


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_other_methods_are_unknown(method: str) -> None:
    assert (await ask(method, OURS)).status_code == 405


def test_host_names_are_parsed() -> None:
    assert [host_name(each) for each in ("A.b:80", "a.b", "[::1]:80", "[::1]")] == ["a.b", "a.b", "[::1]", "[::1]"]


def test_a_token_is_valid_in_its_own_process_only() -> None:
    token, other = Token(), Token()
    assert token.is_right(token.value)
    assert not any(token.is_right(wrong) for wrong in ("", other.value, token.value + "x", "ä", "\ud800"))
