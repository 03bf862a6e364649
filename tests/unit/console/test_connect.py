"""Kafka Connect in the console: connectors are shown without their secrets, and can be restarted. The console contacts
only configured addresses, whatever a request or a response contains.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import pytest_asyncio
from tests.support.kafka_connect import SECRET, FakeConnect, kafka_connect

from oncelog_console.application import application
from oncelog_console.clusters import Cluster
from oncelog_console.limits import MAX_CONNECT_BYTES
from oncelog_console.site import site_of

HOME = "http://localhost:8080"
OURS = {"sec-fetch-site": "same-origin", "origin": HOME}
NAME = "orders <sink>"


@asynccontextmanager
async def browser(address: str, *, changes: bool = True) -> AsyncIterator[tuple[httpx.AsyncClient, Any]]:
    cluster = Cluster("test", "127.0.0.1:1", allows_changes=changes, connect_at={"main": address})
    site = site_of([cluster])
    app = application(site)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HOME) as client:
        yield client, site
    await site.close()


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeConnect]:
    async with kafka_connect() as fake:
        yield fake


def words(answer: httpx.Response) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


async def test_connectors_and_tasks_are_shown_and_secrets_are_not(fake: FakeConnect) -> None:
    async with browser(fake.address) as (client, _):
        listed = await client.get("/connect")
        assert f"{NAME} sink running 2 1" in words(listed)
        assert "odd unknown 0 0" in words(listed), "an odd answer is shown as far as it goes"
        one = await client.get("/connector", params={"at": "main", "name": NAME})
        assert "1 failed w:8083 java.lang.Exception: <b>disk</b>" in words(one)
        assert "<b>disk" not in one.text
        assert "connection.password not told connector.class Jdbc sasl.jaas.config not told topics o" in words(one)
        assert SECRET not in one.text


async def test_a_connector_its_failed_tasks_or_one_task_are_restarted(fake: FakeConnect) -> None:
    async with browser(fake.address) as (client, site):
        token = {"token": site.places[0].open.token.value}
        for more, path in (
            ({}, "/restart?includeTasks=true&onlyFailed=false"),
            ({"failed": "1"}, "/restart?includeTasks=true&onlyFailed=true"),
            ({"task": "1"}, "/tasks/1/restart"),
        ):
            query = {"at": "main", "name": NAME, **more}
            asked = await client.get("/connector/restart", params=query)
            assert f"curl -X POST '{fake.address}/connectors/orders%20%3Csink%3E{path}'" in words(asked) or (
                f"curl -X POST {fake.address}/connectors/orders%20%3Csink%3E{path}" in words(asked)
            )
            assert ("POST", f"/connectors/orders%20%3Csink%3E{path}") not in fake.asked
            done = await client.post("/connector/restart", params=query, data=token, headers=OURS)
            assert done.status_code == 303
            assert fake.asked[-1] == ("POST", f"/connectors/orders%20%3Csink%3E{path}")
        without = await client.post("/connector/restart", params={"at": "main", "name": NAME}, headers=OURS)
        assert without.status_code in (403, 415)
    async with browser(fake.address, changes=False) as (client, site):
        token = {"token": site.places[0].open.token.value}
        query = {"at": "main", "name": NAME}
        assert (await client.post("/connector/restart", params=query, data=token, headers=OURS)).status_code == 403
        assert "restart" not in (await client.get("/connector", params=query)).text.lower()


@pytest.mark.parametrize("at", ["other", "http://127.0.0.1:1", "", "../main"])
async def test_only_configured_addresses_are_asked(fake: FakeConnect, at: str) -> None:
    async with browser(fake.address) as (client, _):
        assert (await client.get("/connector", params={"at": at, "name": NAME})).status_code == 404
    assert fake.asked == []


@pytest.mark.parametrize("name", ["..", ".", "", "../../admin", "a/../b", "x?y=1#z", "a\r\nX: y"])
async def test_a_name_is_one_part_of_a_path(fake: FakeConnect, name: str) -> None:
    async with browser(fake.address) as (client, _):
        answer = await client.get("/connector", params={"at": "main", "name": name})
    assert answer.status_code in (400, 502)
    for _, path in fake.asked:
        assert re.fullmatch(r"/connectors/[^/?#]+(/status)?", path), path


async def test_a_user_and_a_password_in_the_address_are_sent_and_not_shown(fake: FakeConnect) -> None:
    async with browser(f"http://robot:{SECRET}@127.0.0.1:{fake.port}") as (client, _):
        listed = await client.get("/connect")
        asked = await client.get("/connector/restart", params={"at": "main", "name": NAME})
        fake.answer = b"nonsense"
        failed = await client.get("/connector", params={"at": "main", "name": NAME})
    assert len(fake.authorization) == 1
    assert not any(SECRET in page.text for page in (listed, asked, failed))


def answer(body: bytes, status: bytes = b"200 OK", *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), b"Connection: close", *headers, b"", body]
    return b"\r\n".join(lines)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("value.converter.basic.auth.user.info", f"robot:{SECRET}"),
        ("connection.uri", f"mongodb+srv://robot:{SECRET}@db/orders"),
        ("connection.url", f"jdbc:mysql://db/orders?user=robot&password={SECRET}"),
        ("producer.override.sasl.login", f'x.PlainLoginModule required username="a" password="{SECRET}";'),
        ("azure.storage.account.key", SECRET),
        ("aws.access.key.id", SECRET),
        ("http.headers", f"Authorization: Bearer {SECRET}"),
        ("trace", f"SQLException: refused jdbc:postgresql://robot:{SECRET}@db/orders"),
    ],
)
async def test_a_secret_is_not_shown_wherever_it_stands(fake: FakeConnect, key: str, value: str) -> None:
    document = {
        "config": {key: value, "topics": "orders"},
        "connector": {"state": "FAILED", "trace": value if key == "trace" else ""},
    }
    fake.answer = answer(json.dumps(document).encode())
    async with browser(fake.address) as (client, _):
        one = await client.get("/connector", params={"at": "main", "name": NAME})
    assert "topics orders" in words(one)
    assert SECRET not in one.text


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (answer(b"<html>"), "does not answer as Kafka Connect"),
        (answer(b"[" * 500_000), "does not answer as Kafka Connect"),
        (answer(b"", b"302 Found", b"Location: http://127.0.0.1:1/secret"), "does not answer as Kafka Connect"),
        (answer(b" " * (MAX_CONNECT_BYTES + 1)), "is longer than"),
        (answer(b'{"message": "rebalancing"}', b"409 Conflict"), "rebalancing (HTTP 409)"),
        (answer(b'{"message": "no http://a:b@c"}', b"500 X"), "no http://a:[hidden]@c (HTTP 500)"),
        (b"\xff" * 100, "cannot be reached"),
        (b"", "cannot be reached"),
        (answer(b"7"), "No connectors"),
        (answer(b'{"\\ud800": {"info": {"type": "\\udfff"}}}'), "\\ud800 \\udfff"),
        (answer(b'{"a": 7, "b": {"status": {"tasks": [7, {"id": "x"}]}}}'), "b unknown 1 0"),
    ],
    ids=["html", "deep", "redirect", "huge", "refusal", "password", "no http", "nothing", "number", "surrogate", "odd"],
)
async def test_whatever_it_answers_the_page_is_made(fake: FakeConnect, said: bytes, why: str) -> None:
    fake.answer = said
    async with browser(fake.address) as (client, _):
        listed = await client.get("/connect")
    assert listed.status_code == 200
    assert why in words(listed)


async def test_one_that_does_not_answer_is_told(fake: FakeConnect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog_console.lookups.connect.CONNECT_SECONDS", 0.2)
    fake.delay_s = 2.0
    async with browser(fake.address) as (client, _):
        assert "no answer within" in words(await client.get("/connect"))
    async with browser("http://127.0.0.1:1") as (client, _):
        assert "cannot be reached" in words(await client.get("/connect"))
