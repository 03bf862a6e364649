"""The state that pages share: loads and notices."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from oncelog.errors import ClientClosed, ErrorCode, KafkaError
from oncelog_console.clusters import Cluster
from oncelog_console.clusters import Login as ConsoleLogin
from oncelog_console.console import MAX_NOTICES, Notices
from oncelog_console.entrance import Entrance
from oncelog_console.limits import SHARED_SECONDS
from oncelog_console.link import Link, Shared
from oncelog_console.login.oidc import OidcLogin, OidcSettings, Provider
from oncelog_console.login.sessions import Session
from oncelog_console.pages.page_request import Form, change
from oncelog_console.site import site_of


class Loader:
    def __init__(self) -> None:
        self.times = 0
        self.may_end = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.times += 1
        await self.may_end.wait()
        if self.error:
            raise self.error
        return self.times


class FakeAdmin:
    """An admin client whose start waits until `may_start` is set."""

    def __init__(self) -> None:
        self.may_start = asyncio.Event()
        self.is_closed = False

    async def start(self) -> None:
        await self.may_start.wait()

    async def close(self) -> None:
        self.is_closed = True


async def test_simultaneous_requests_cause_one_load() -> None:
    shared, load = Shared[int](), Loader()
    asking = [asyncio.ensure_future(shared.get("a", load)) for _ in range(5)]
    other = asyncio.ensure_future(shared.get("b", Loader()))
    await asyncio.sleep(0)
    load.may_end.set()
    assert await asyncio.gather(*asking) == [1] * 5
    assert load.times == 1
    assert not other.done(), "another key has a load of its own"
    await shared.close()
    await asyncio.gather(other, return_exceptions=True)


async def test_a_load_is_good_for_a_while() -> None:
    now = 0.0
    shared, load = Shared[int](lambda: now), Loader()
    load.may_end.set()
    assert [await shared.get("a", load) for _ in range(3)] == [1, 1, 1]
    now += SHARED_SECONDS + 0.1
    assert await shared.get("a", load) == 2
    shared.forget()
    assert await shared.get("a", load) == 3


async def test_a_disconnected_client_does_not_end_a_shared_load() -> None:
    shared, load = Shared[int](), Loader()
    leaves, stays = (asyncio.ensure_future(shared.get("a", load)) for _ in range(2))
    await asyncio.sleep(0)
    leaves.cancel()
    await asyncio.gather(leaves, return_exceptions=True)
    load.may_end.set()
    assert await stays == 1


async def test_a_load_that_fails_fails_for_all_who_wait() -> None:
    shared, load = Shared[int](), Loader()
    load.error = ValueError("no")
    load.may_end.set()
    answers = await asyncio.gather(*(shared.get("a", load) for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [ValueError] * 3


async def test_a_load_ends_in_time_though_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog_console.link.PAGE_SECONDS", 0)
    shared, load = Shared[int](), Loader()
    left = asyncio.ensure_future(shared.get("a", load))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    joins = asyncio.ensure_future(shared.get("a", load))
    await asyncio.wait([joins], timeout=60)
    assert isinstance(joins.exception(), TimeoutError)


def test_notices_are_few_and_their_names_cannot_be_guessed() -> None:
    notices = Notices()
    first = notices.add("done")
    assert notices.get(first) == "done"
    assert notices.get("done") is None
    for number in range(MAX_NOTICES):
        notices.add(str(number))
    assert notices.get(first) is None


@pytest.mark.parametrize("name", ["", "x"])
def test_a_new_console_has_no_notice(name: str) -> None:
    assert Notices().get(name) is None


async def test_a_link_that_is_closed_makes_no_more_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    admins: list[FakeAdmin] = []

    def make(*_: object, **__: object) -> FakeAdmin:
        admins.append(FakeAdmin())
        return admins[-1]

    monkeypatch.setattr("oncelog_console.link.Admin", make)
    link = Link("broker:9092", {})
    asking = asyncio.ensure_future(link.admin())
    while not admins:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await link.close()
    admins[0].may_start.set()
    with pytest.raises(ClientClosed, match="log in again"):
        await asking
    assert admins[0].is_closed, "nobody else would close it"
    for ask in (link.new_admin, link.new_producer):
        with pytest.raises(ClientClosed):
            ask()
    with pytest.raises(ClientClosed):
        await link.admin()
    assert len(admins) == 1


async def test_a_session_that_ends_while_its_token_is_replaced_opens_no_console() -> None:
    session = Session(0.0, 0.0, "alice")

    class SlowLogin(OidcLogin):
        async def is_valid(self) -> bool:
            await session.close()
            return True

    provider = Provider(OidcSettings("https://id.example.com", "console", None, "https://console.example.com"))
    cluster = Cluster(
        "test", "broker:9092", {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, ConsoleLogin.OIDC
    )
    site = site_of([cluster], provider)
    session.oidc = SlowLogin(provider, "alice", {"access_token": "t", "expires_at": None})
    assert await site.console_for(site.places[0], session) is None
    assert session.consoles == {}


async def test_pages_are_reloaded_after_a_failed_change() -> None:
    site = site_of([Cluster("test", "broker:9092", allows_changes=True)])
    console = site.places[0].open
    assert console is not None
    load = Loader()
    load.may_end.set()

    @change
    async def failing(request: Request, form: Form) -> Response:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nobody knows")

    app = Starlette(
        routes=[Route("/change", failing, methods=["POST"])],
        middleware=[Middleware(Entrance, site=site, place=site.places[0])],
    )
    app.state.site = site
    await console.shared.get("page", load)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        answer = await client.post("/change", data={"token": console.token.value})
    assert answer.status_code >= 400
    assert "nobody knows" in answer.text
    assert await console.shared.get("page", load) == 2
