"""Runs before every page of a cluster: finds the console of the visitor, or redirects to the login."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from oncelog_console.clusters import Login
from oncelog_console.urls import PREFIX, addressed, url

if TYPE_CHECKING:
    from oncelog_console.site import Place, Site

COOKIE: Final = "oncelog-console"
LOGIN: Final = "/login"


class Entrance:
    """ASGI middleware around the pages of one cluster. The middleware puts the console of the visitor's session into
    `scope["console"]` and the cluster's path prefix into `urls.PREFIX`, and redirects a visitor without a session to
    the login.
    """

    def __init__(self, app: ASGIApp, *, site: Site, place: Place) -> None:
        self._app = app
        self._site = site
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        token = PREFIX.set(self._place.prefix)
        try:
            request = Request(scope)
            session = self._site.sessions.get(request.cookies.get(COOKIE))
            console = await self._site.console_for(self._place, session)
            scope["console"] = console
            scope["place"] = self._place
            path = scope["path"].removeprefix(self._place.prefix)
            if console is None and path != LOGIN:
                await self._to_login(request, path)(scope, receive, send)
            else:
                await self._app(scope, receive, send)
        finally:
            PREFIX.reset(token)

    def _to_login(self, request: Request, path: str) -> Response:
        if request.method != "GET" or request.headers.get("sec-fetch-mode", "navigate") != "navigate":
            return PlainTextResponse("log in first: load the page again", 401)
        wanted = addressed(path, **request.query_params)
        if self._place.cluster.login is Login.OIDC:
            return RedirectResponse(addressed("/oidc/start", cluster=self._place.cluster.name, next=wanted), 303)
        return RedirectResponse(url(LOGIN, next=wanted), 303)


def set_cookie(response: Response, token: str, *, is_secure: bool) -> None:
    """Set the cookie with the session's token: no script can read it, and no form of another site can send it."""
    response.set_cookie(COOKIE, token, httponly=True, samesite="lax", secure=is_secure, path="/")
