"""The ASGI application: its routes, and its background tasks."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from oncelog_console.entrance import Entrance
from oncelog_console.guard import Guard
from oncelog_console.limits import LOGIN_SECONDS
from oncelog_console.pages import (
    access,
    brokers,
    changes,
    clusters,
    connect,
    ends,
    groups,
    login,
    partition,
    queries,
    records,
    resets,
    tail,
    topics,
    transactions,
)
from oncelog_console.rendering import STATIC, Refused, error_page
from oncelog_console.site import Site

LOGIN_COOKIE = "oncelog-console-login"


class Assets(StaticFiles):
    """Static files that a browser revalidates each time, so that an upgrade is visible immediately."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


def application(site: Site, *, hosts: Iterable[str] = ()) -> Starlette:
    """`hosts`: host names under which browsers may reach the console, in addition to those of loopback. The site is
    closed when the application
    ends.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        site.begin()
        try:
            yield
        finally:
            await site.close()

    middleware = [Middleware(Guard, hosts=tuple(hosts), allows_changes=site.takes_forms)]
    if site.oidc is not None:
        # This signed cookie is used only while the browser is at the identity provider for a login.
        middleware.append(
            Middleware(
                SessionMiddleware,
                secret_key=secrets.token_urlsafe(32),
                session_cookie=LOGIN_COOKIE,
                max_age=LOGIN_SECONDS,
                same_site="lax",
                https_only=site.is_secure,
            )
        )
    app = Starlette(
        routes=[*_of_site(site), *_of_clusters(site)],
        middleware=middleware,
        exception_handlers={404: _not_found},
        lifespan=lifespan,
    )
    app.state.site = site
    return app


def _of_site(site: Site) -> list[BaseRoute]:
    routes: list[BaseRoute] = [Mount("/static", Assets(directory=STATIC))]
    if site.oidc is not None:
        routes += [Route("/oidc/start", login.start_oidc), Route("/oidc/callback", login.end_oidc)]
    if site.has_several:
        routes.append(Route("/", clusters.clusters))
    return routes


def _of_clusters(site: Site) -> list[BaseRoute]:
    mounted: list[BaseRoute] = []
    for place in site.places:
        pages = Starlette(
            routes=_pages(),
            middleware=[Middleware(Entrance, site=site, place=place)],
            exception_handlers={404: _not_found},
        )
        pages.state.site = site
        mounted.append(Mount(place.prefix, pages))
    return mounted


def _pages() -> list[BaseRoute]:
    return [
        Route("/", brokers.brokers),
        Route("/login", login.ask_login, methods=["GET"]),
        Route("/login", login.login, methods=["POST"]),
        Route("/logout", login.logout, methods=["POST"]),
        Route("/topics", topics.topics),
        Route("/topic", topics.topic),
        Route("/partition", partition.partition),
        Route("/records", records.records),
        Route("/record", records.record),
        Route("/download", records.download),
        Route("/tail", tail.tail_events),
        Route("/groups", groups.groups),
        Route("/group", groups.group),
        Route("/group/reset", resets.ask_reset, methods=["GET"]),
        Route("/group/reset", resets.reset, methods=["POST"]),
        Route("/queries", queries.queries),
        Route("/query", queries.query),
        Route("/transactions", transactions.transactions),
        Route("/transaction/abort", ends.ask_abort, methods=["GET"]),
        Route("/transaction/abort", ends.abort, methods=["POST"]),
        Route("/transaction/fence", ends.ask_fence, methods=["GET"]),
        Route("/transaction/fence", ends.fence, methods=["POST"]),
        Route("/acls", access.acls),
        Route("/users", access.users),
        Route("/quotas", access.quotas),
        Route("/connect", connect.connect),
        Route("/connector", connect.connector),
        Route("/connector/restart", connect.ask_restart, methods=["GET"]),
        Route("/connector/restart", connect.restart, methods=["POST"]),
        Route("/change/{kind}", changes.ask, methods=["GET"]),
        Route("/change/{kind}", changes.submit, methods=["POST"]),
    ]


async def _not_found(request: Request, _: Exception) -> Response:
    return error_page(request, Refused("this page does not exist", 404))
