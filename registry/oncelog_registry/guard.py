"""Checks each call before it is handled, because a web page that is open in a user's browser must not be able to make
calls.

A browser names the site of the page in `Origin` or `Sec-Fetch-Site` with each request that a page causes; other
programs send neither. An attacker's host name may resolve to this machine (DNS rebinding). A registry on loopback
therefore accepts only requests for the host names of loopback, and for host names that it was started with.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from oncelog_console.guard import host_name


class Guard:
    """ASGI middleware that refuses calls from web pages. `hosts`: names, without ports, under which clients may call
    the registry; None means any.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refusal = self.refusal(Headers(scope=scope))
            if refusal is not None:
                status, why = refusal
                await JSONResponse({"error_code": status, "message": why}, status)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def refusal(self, headers: Headers) -> tuple[int, str] | None:
        """Return the status and the reason of a refusal; None for a request that may pass."""
        if "origin" in headers or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "A page of a browser asks for this; the registry answers programs"
        if self._hosts is not None:
            host = host_name(headers.get("host", ""))
            if host not in self._hosts:
                return 421, f"This is not the host you ask for: start oncelog registry with --allow-host {host[:100]}"
        return None
