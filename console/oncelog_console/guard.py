"""Checks the host and the origin of each request before its page is created, and adds headers for the browser to the
response.

A page of any site that is open in the user's browser can make the browser send requests to the console. The console
therefore makes three checks. A request must name the console as its host, because a foreign host name may resolve to
the console now and to another site later. A request from another site may only read pages. A change must come from a
page of the console, with the token that only the console's pages have.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oncelog_console.limits import SEND_SECONDS

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
READING: Final = ("GET", "HEAD")


class Guard:
    """ASGI middleware that refuses requests to foreign hosts and changes from foreign pages. `hosts`: the console's
    host names, without ports, in addition to those of loopback.
    """

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str] = (), allows_changes: bool = False) -> None:
        self._app = app
        self._hosts = frozenset(LOOPBACK) | {host.lower() for host in hosts}
        self._allows_changes = allows_changes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"
            async with asyncio.timeout(SEND_SECONDS):
                await send(message)

        refusal = self.refusal(scope["method"], Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, guarded)
        else:
            status, why = refusal
            await PlainTextResponse(f"{why}\n", status)(scope, receive, guarded)

    def refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        """Return the HTTP status and the reason with which the console refuses a request; None if the request is
        allowed.
        """
        hosts = headers.getlist("host")
        if len(hosts) != 1 or host_name(hosts[0]) not in self._hosts:
            return 421, "this is not the host you ask for: see --allow-host of oncelog console"
        site = headers.get("sec-fetch-site", "same-origin")
        if method in READING:
            if site == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
                return 403, "another site asks for this"
            return None
        if method != "POST":
            return 405, "only GET, HEAD and POST are supported"
        if not self._allows_changes:
            return 403, "nothing can be changed here: oncelog console was started without --allow-changes"
        origins = headers.getlist("origin")
        if site != "same-origin" or len(origins) != 1 or origins[0].partition("://")[2] != hosts[0]:
            return 403, "a change must come from a page of this console"
        return None


def host_name(host: str) -> str:
    """Return the name in a Host header in lower case, without the port."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdecimal() else host.lower()


class Token:
    """The anti-CSRF token in every form that makes a change. Each start of the console creates a new token."""

    def __init__(self) -> None:
        self.value = secrets.token_urlsafe(32)

    def is_right(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(errors="surrogatepass"), self.value.encode())
