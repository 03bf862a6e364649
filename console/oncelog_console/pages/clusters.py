"""/: the list of clusters, if there are several."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oncelog_console.entrance import COOKIE
from oncelog_console.rendering import render
from oncelog_console.site import Site


async def clusters(request: Request) -> Response:
    """Show names and addresses, without requests to the clusters."""
    site: Site = request.app.state.site
    session = site.sessions.get(request.cookies.get(COOKIE))
    logged_in = {} if session is None else {name: console.user for name, console in session.consoles.items()}
    return render(request, "clusters.html", console=None, places=site.places, logged_in=logged_in)
