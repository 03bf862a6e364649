"""The ASGI application: its routes, and the background work of its lifetime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from oncelog_console.console import Console
from oncelog_console.guard import Guard
from oncelog_console.link import Link
from oncelog_console.pages import (
    access,
    brokers,
    changes,
    ends,
    groups,
    partition,
    queries,
    records,
    resets,
    tail,
    topics,
    transactions,
)
from oncelog_console.rendering import STATIC, Refused, error_page


class Assets(StaticFiles):
    """Static files that a browser revalidates each time, so that an upgrade shows at once."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


def application(
    link: Link, *, allows_changes: bool = False, hosts: Iterable[str] = (), queries_at: Iterable[str] = ()
) -> Starlette:
    """`hosts`: host names of the console, in addition to those of loopback. `queries_at`: URLs of the metrics of Spark
    queries."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        console: Console = app.state.console
        sampling = asyncio.gather(console.history.run(), console.queries.run())
        try:
            yield
        finally:
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)
            await console.shared.close()
            await console.workers.close()
            await link.close()

    app = Starlette(
        routes=[
            Route("/", brokers.brokers),
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
            Route("/change/{kind}", changes.ask, methods=["GET"]),
            Route("/change/{kind}", changes.submit, methods=["POST"]),
            Mount("/static", Assets(directory=STATIC)),
        ],
        middleware=[Middleware(Guard, hosts=tuple(hosts), allows_changes=allows_changes)],
        exception_handlers={404: _not_found},
        lifespan=lifespan,
    )
    app.state.console = Console(link, allows_changes, query_addresses=tuple(queries_at))
    return app


async def _not_found(request: Request, _: Exception) -> Response:
    return error_page(request, Refused("this page does not exist", 404))
