"""Tests logins to the console: as a SASL user of the cluster, and at an identity provider. The cluster's ACLs decide
what each user may see and change. Broker, identity provider and tokens are real.
"""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from console_browser import HOME, OURS, PATIENT, Browser, as_text
from identity_provider import CLIENT_ID, SECRET, IdentityProvider
from secured_broker import ADMIN, ADMIN_PASSWORD, PASSWORD, USER, SecuredBroker
from tests.support.kafka_connect import kafka_connect

from oncelog import Admin, NewTopic
from oncelog.admin import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from oncelog_console.application import application
from oncelog_console.clusters import Cluster, Login
from oncelog_console.entrance import COOKIE
from oncelog_console.login.oidc import OidcSettings, Provider
from oncelog_console.site import site_of

GUARDED = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": f"User:{ADMIN}",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": "",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": "",
}
SEEN, HIDDEN = "seen-by-alice", "hidden-from-alice"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("guarded"), GUARDED) as broker:
        yield broker
    assert "Traceback" not in broker.logged


@pytest.fixture(scope="module")
def address(guarded: SecuredBroker) -> str:
    return guarded.process.address


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("pages.page_request", "link"):
        monkeypatch.setattr(f"oncelog_console.{place}.PAGE_SECONDS", 90.0)
    monkeypatch.setattr("oncelog_console.pages.login.FAILED_LOGIN_SECONDS", 0.0)


@pytest.fixture(autouse=True)
async def topics(guarded: SecuredBroker, address: str) -> None:
    settings = guarded.settings("SASL_PLAINTEXT", "SCRAM-SHA-256", ADMIN, ADMIN_PASSWORD)
    async with Admin(address, **settings) as admin:
        if SEEN not in await admin.list_topics():
            await admin.create_topics([NewTopic(SEEN), NewTopic(HIDDEN)])
            pattern = ResourcePattern(AclResourceType.TOPIC, SEEN, PatternType.LITERAL)
            entry = AclEntry(f"User:{USER}", "*", AclOperation.DESCRIBE, AclPermission.ALLOW)
            await admin.acls.create([AclBinding(pattern, entry)])


def by_password(address: str, name: str = "test") -> Cluster:
    settings = {**PATIENT, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}
    return Cluster(name, address, settings, Login.SASL, allows_changes=True)


def by_token(address: str, name: str = "test") -> Cluster:
    settings = {**PATIENT, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    return Cluster(name, address, settings, Login.OIDC, allows_changes=True)


@asynccontextmanager
async def site(*clusters: Cluster, provider: Provider | None = None) -> AsyncIterator[Any]:
    """Yield the application, whose `visitor` creates browsers."""
    app = application(site_of(clusters, provider))
    async with app.router.lifespan_context(app):
        yield app


@asynccontextmanager
async def visitor(app: Any) -> AsyncIterator[Browser]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HOME, timeout=100) as client:
        yield Browser(client, app)


async def log_in(browser: Browser, name: str, password: str, path: str = "/login", **headers: str) -> httpx.Response:
    return await browser.client.post(path, data={"name": name, "password": password}, headers={**OURS, **headers})


# --- logins as a SASL user of the cluster


async def test_each_visitor_sees_what_the_user_who_logged_in_may_see(address: str) -> None:
    async with site(by_password(address)) as app, visitor(app) as alice, visitor(app) as admin:
        sent_away = await alice.client.get("/topics?q=x")
        assert (sent_away.status_code, sent_away.headers["location"]) == (303, "/login?next=%2Ftopics%3Fq%3Dx")
        assert "Log in to test" in await alice.text("/login")
        done = await log_in(admin, ADMIN, ADMIN_PASSWORD)
        assert (done.status_code, done.headers["location"]) == (303, "/")
        text = await admin.text("/topics")
        assert SEEN in text
        assert HIDDEN in text
        assert (await log_in(alice, USER, PASSWORD, sent_away.headers["location"])).headers["location"] == "/topics?q=x"
        text = await alice.text("/topics")
        assert f"{USER} Log out" in text
        assert SEEN in text
        assert HIDDEN not in text, "pages are shared with nobody else"
        assert len(app.state.site.sessions) == 2


async def test_rights_to_change_are_those_of_the_user(address: str, topic: str) -> None:
    async with site(by_password(address)) as app, visitor(app) as alice, visitor(app) as admin:
        await log_in(alice, USER, PASSWORD)
        await log_in(admin, ADMIN, ADMIN_PASSWORD)
        refused = await alice.send(await alice.page("/change/topic-create"), "edit", name=topic)
        assert refused.status_code == 403
        assert "oncelog acls add gives it" in as_text(refused.text)
        shown = await admin.fill(await admin.page("/change/topic-create"), name=topic)
        of_admin = re.findall(r'name="token" value="([^"]+)"', shown)[-1]
        stolen = {"name": topic, "step": "do", "token": of_admin}
        assert (await alice.client.post("/change/topic-create", data=stolen, headers=OURS)).status_code == 403
        assert (await admin.submit(shown)).status_code == 303
        assert "/change/" in await admin.page("/acls")


async def test_a_wrong_login_says_so_and_begins_no_session(address: str) -> None:
    async with site(by_password(address)) as app, visitor(app) as browser:
        for name, password, status in (
            (USER, "wrong", 401), ("nobody", "wrong", 401),
            (USER, "", 400), ("", "wrong", 400), ("x" * 1000, "wrong", 400),
        ):  # fmt: skip
            answer = await log_in(browser, name, password)
            assert answer.status_code == status
            assert not password or password not in answer.text
            assert COOKIE not in answer.cookies
        assert len(app.state.site.sessions) == 0
        assert (await browser.client.get("/tail?topic=x", headers={"sec-fetch-mode": "cors"})).status_code == 401
        crossing = {"origin": "http://evil.example", "sec-fetch-site": "cross-site"}
        assert (await log_in(browser, USER, PASSWORD, **crossing)).status_code == 403


async def test_a_login_leads_to_no_other_site(address: str) -> None:
    async with site(by_password(address)) as app, visitor(app) as browser:
        for wanted in ("//evil.example/", "https://evil.example/", "/\\evil.example", "/a\nb"):
            done = await log_in(browser, USER, PASSWORD, str(httpx.URL("/login", params={"next": wanted})))
            assert done.headers["location"] == "/"


async def test_a_session_has_a_new_token_and_ends_at_its_logout(address: str) -> None:
    async with site(by_password(address)) as app, visitor(app) as browser:
        browser.client.cookies.set(COOKIE, "chosen-by-somebody-else", domain="127.0.0.1")
        done = await log_in(browser, USER, PASSWORD)
        cookie = done.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        first = done.cookies[COOKIE]
        assert first != "chosen-by-somebody-else"
        page = await browser.page("/topics")
        (token,) = re.findall(r'name="token" value="([^"]+)"', page)
        assert (await browser.client.post("/logout", data={"token": "no"}, headers=OURS)).status_code == 403
        left = await browser.client.post("/logout", data={"token": token}, headers=OURS)
        assert "You are logged out" in as_text(left.text)
        browser.client.cookies.set(COOKIE, first, domain="127.0.0.1")
        assert (await browser.client.get("/topics")).status_code == 303, "the token is worth nothing any more"
        assert len(app.state.site.sessions) == 0


async def test_a_live_tail_ends_with_the_session(address: str) -> None:
    async with site(by_password(address)) as app, visitor(app) as admin:
        token = (await log_in(admin, ADMIN, ADMIN_PASSWORD)).cookies[COOKIE]
        following = asyncio.create_task(admin.client.get("/tail", params={"topic": SEEN}))
        async with asyncio.timeout(60):
            while app.state.site.capacity.tails == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await app.state.site.sessions.end(token)
        answer = await asyncio.wait_for(following, 60)
        assert answer.status_code == 200
        assert app.state.site.capacity.tails == 0


async def test_connectors_are_restarted_by_who_may_change_brokers(address: str) -> None:
    async with kafka_connect() as fake:
        cluster = replace(by_password(address), connect_at={"main": fake.address})
        async with site(cluster) as app, visitor(app) as alice, visitor(app) as admin:
            await log_in(alice, USER, PASSWORD)
            await log_in(admin, ADMIN, ADMIN_PASSWORD)
            query = {"at": "main", "name": "orders <sink>"}
            refused = await alice.submit(await alice.page("/connector/restart", **query))
            assert refused.status_code == 403
            assert not [path for method, path in fake.asked if method == "POST"]
            assert (await admin.submit(await admin.page("/connector/restart", **query))).status_code == 303
            assert [path for method, path in fake.asked if method == "POST"]


# --- several clusters


async def test_several_clusters_have_pages_and_logins_of_their_own(address: str) -> None:
    away = Cluster("away", "127.0.0.1:1", dict.fromkeys(PATIENT, 1000))
    async with site(by_password(address, "one"), away) as app, visitor(app) as browser:
        text = await browser.text("/")
        assert f"one {address} allowed" in text
        assert "away 127.0.0.1:1 read-only no login" in text
        sent_away = await browser.client.get("/c/one/topics")
        assert sent_away.headers["location"] == "/c/one/login?next=%2Ftopics"
        done = await log_in(browser, USER, PASSWORD, sent_away.headers["location"])
        assert done.headers["location"] == "/c/one/topics"
        page = await browser.page("/c/one/topics")
        assert SEEN in page
        outside = [link for link in re.findall(r'(?:href|action)="(/[^"]*)"', page) if not link.startswith("/static")]
        assert [link for link in outside if not link.startswith("/c/one/")] == ["/"], "the list of clusters"
        shown = await browser.page("/c/one/change/topic-delete", 403, name=HIDDEN)
        assert "AUTHORIZATION_FAILED" in shown
        assert "cannot reach 127.0.0.1:1" in await browser.text("/c/away/topics", 503)
        assert (await browser.client.get("/c/other/topics")).status_code == 404


# --- logins at an identity provider


@pytest.fixture
def idp(guarded: SecuredBroker) -> Iterator[IdentityProvider]:
    with IdentityProvider(guarded.token_key) as provider:
        yield provider


def provider_of(idp: IdentityProvider, **settings: Any) -> Provider:
    return Provider(OidcSettings(idp.issuer, CLIENT_ID, SECRET, HOME, **settings))


async def to_the_provider(browser: Browser, path: str = "/topics") -> str:
    """Return the address at the provider to which the console redirects a visitor."""
    sent_away = await browser.client.get(path)
    assert sent_away.headers["location"].startswith("/oidc/start"), sent_away.text
    started = await browser.client.get(sent_away.headers["location"])
    if started.status_code != 302:
        raise AssertionError(as_text(started.text))
    return started.headers["location"]


async def back_from(browser: Browser, there: str) -> httpx.Response:
    """Log in at the provider, and return to the console with the code from the provider."""
    async with httpx.AsyncClient() as client:
        answer = await client.get(there)
    back = answer.headers["location"]
    assert back.startswith(f"{HOME}/oidc/callback?")
    return await browser.client.get(back.removeprefix(HOME))


async def test_a_user_of_the_provider_is_that_user_in_the_cluster(address: str, idp: IdentityProvider) -> None:
    async with site(by_token(address), provider=provider_of(idp)) as app, visitor(app) as browser:
        there = await to_the_provider(browser, "/topics?q=alice")
        assert "code_challenge=" in there
        done = await back_from(browser, there)
        assert done.status_code == 200, as_text(done.text)
        assert 'url=/topics?q=alice"' in html.unescape(done.text)
        assert "HttpOnly" in "".join(done.headers.get_list("set-cookie"))
        text = await browser.text("/topics")
        assert f"{USER} Log out" in text
        assert SEEN in text
        assert HIDDEN not in text
        again = await back_from(browser, there)
        assert again.status_code == 401, "a state is good for one login"
        idp.user = ADMIN
        async with visitor(app) as admin:
            await back_from(admin, await to_the_provider(admin))
            assert HIDDEN in await admin.text("/topics")


@pytest.mark.parametrize(
    ("mischief", "why"),
    [
        ("refuses", "access_denied"),
        ("another nonce", "InvalidClaimError"),
        ("another audience", "MissingClaimError"),
        ("another key", "BadSignatureError"),
        ("unsigned", "UnsupportedAlgorithmError"),
        ("expired", "ExpiredTokenError"),
        ("no id token", "no id token"),
    ],
)
async def test_a_login_that_the_provider_did_not_vouch_for_is_refused(
    address: str, idp: IdentityProvider, mischief: str, why: str
) -> None:
    async with site(by_token(address), provider=provider_of(idp)) as app, visitor(app) as browser:
        there = await to_the_provider(browser)
        idp.mischief = mischief
        refused = await back_from(browser, there)
        assert refused.status_code == 401
        assert why in as_text(refused.text)
        assert len(app.state.site.sessions) == 0


@pytest.mark.parametrize("mischief", ["no json", "another issuer"])
async def test_a_provider_that_is_none_is_told(address: str, idp: IdentityProvider, mischief: str) -> None:
    idp.mischief = mischief
    async with site(by_token(address), provider=provider_of(idp)) as app, visitor(app) as browser:
        started = await browser.client.get("/oidc/start?cluster=test")
        if mischief == "no json":
            assert (started.status_code, "cannot be used" in started.text) == (502, True)
        else:
            refused = await back_from(browser, started.headers["location"])
            assert refused.status_code == 401
            assert "InvalidClaimError" in refused.text
        assert len(app.state.site.sessions) == 0


async def test_a_state_of_another_browser_is_refused(address: str, idp: IdentityProvider) -> None:
    async with site(by_token(address), provider=provider_of(idp)) as app, visitor(app) as one, visitor(app) as other:
        there = await to_the_provider(one)
        refused = await back_from(other, there)
        assert "mismatching_state" in refused.text
        assert refused.status_code == 401, "who is led here by somebody else's link is not logged in as that user"


async def test_a_token_that_ends_is_replaced_and_without_a_new_one_the_session_ends(
    address: str, idp: IdentityProvider
) -> None:
    idp.token_seconds = 30  # a token lifetime below the console's safety margin, so each page requests a new token
    async with site(by_token(address), provider=provider_of(idp)) as app, visitor(app) as browser:
        await back_from(browser, await to_the_provider(browser))
        assert SEEN in await browser.text("/topics")
        assert idp.refreshed == 1
        idp.revoke()
        ended = await browser.client.get("/topics")
        assert (ended.status_code, ended.headers["location"].startswith("/oidc/start")) == (303, True)
