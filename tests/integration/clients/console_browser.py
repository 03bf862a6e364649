"""Requests pages from `oncelog console` as a browser does, without a socket and without a browser."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from oncelog_console.application import application
from oncelog_console.clusters import Cluster
from oncelog_console.console import Console
from oncelog_console.site import site_of

HOME = "http://127.0.0.1:8080"
OURS = {"origin": HOME, "sec-fetch-site": "same-origin"}
PATIENT = {
    "default_api_timeout_ms": 60_000,
    "request_timeout_ms": 60_000,
    "socket_connection_setup_timeout_ms": 60_000,
}
"""Time limits that suffice on a busy machine; a person would not wait for so long."""


class Browser:
    """Requests pages as a browser would, and returns their text."""

    def __init__(self, client: httpx.AsyncClient, app: Any, address: str = "") -> None:
        self.client = client
        self.address = address
        """The address of the broker that the console shows."""
        self.site = app.state.site

    @property
    def console(self) -> Console:
        """The console of the first cluster, without a login."""
        console = self.site.places[0].open
        assert console is not None
        return console

    async def page(self, path: str, status: int = 200, **query: Any) -> str:
        answer = await self.client.get(path, params=query or None)
        assert answer.status_code == status, answer.text
        assert "\\u202f" not in answer.text, "what stands between thousands is not an escape"
        return answer.text

    async def text(self, path: str, status: int = 200, **query: Any) -> str:
        return as_text(await self.page(path, status, **query))

    async def submit(self, page: str, **changed: str) -> httpx.Response:
        """Confirm the change that a page shows."""
        return await self.send(page, "decide", **changed)

    async def fill(self, page: str, **typed: str) -> str:
        """Fill in a form of a page, for a change that the console shows before it is made; return the page that shows
        the change.
        """
        answer = await self.send(page, "edit", **typed)
        assert answer.status_code == 200, as_text(answer.text)
        return answer.text

    async def send(self, page: str, kind: str, **typed: str) -> httpx.Response:
        """Send the form of a page whose class is `kind`, with its hidden fields and the typed values."""
        form = re.search(rf'<form class="{kind}" method="post" action="([^"]+)"[^>]*>(.*?)</form>', page, re.DOTALL)
        assert form, as_text(page)
        fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', form[2]))
        fields = {name: html.unescape(value) for name, value in fields.items()} | typed
        # browsers send line ends as CRLF
        sent = {name: re.sub(r"\r\n|\r|\n", "\r\n", value) for name, value in fields.items()}
        return await self.client.post(html.unescape(form[1]), data=sent, headers=OURS)


def as_text(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


@asynccontextmanager
async def opened(
    address: str, *, changes: bool = True, settings: Mapping[str, int] = PATIENT, **options: Any
) -> AsyncIterator[Browser]:
    app = application(site_of([Cluster("test", address, settings, allows_changes=changes, **options)]))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=HOME, timeout=100) as client,
    ):
        yield Browser(client, app, address)
