"""/login and /logout of a cluster, /oidc/start and /oidc/callback for the identity provider."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from oncelog.cli.running import describe
from oncelog.errors import AuthenticationFailed, ConfigError, KafkaError
from oncelog_console.clusters import Login
from oncelog_console.entrance import COOKIE, set_cookie
from oncelog_console.limits import FAILED_LOGIN_SECONDS, MAX_NAME_CHARACTERS, MAX_PASSWORD_CHARACTERS
from oncelog_console.link import Link
from oncelog_console.login.oidc import LoginFailed
from oncelog_console.pages.page_request import console_of, form_of
from oncelog_console.rendering import Refused, error_page, render
from oncelog_console.site import Place, Site
from oncelog_console.urls import is_ours, url

MAX_NEXT_CHARACTERS = 1000
"""Limit on the length of the path in the login cookie, because browsers drop cookies larger than 4 KB."""


async def ask_login(request: Request) -> Response:
    """Show the form for name and password."""
    place = _place_of(request)
    if place.cluster.login is not Login.SASL:
        return error_page(request, Refused("nobody logs in with a password here", 404))
    return _form(request, place)


async def login(request: Request) -> Response:
    """Log in to the cluster as the named user. The guard has already checked the origin of the form."""
    place = _place_of(request)
    if place.cluster.login is not Login.SASL:
        return error_page(request, Refused("nobody logs in with a password here", 404))
    try:
        form = await form_of(request)
    except Refused as refused:
        return error_page(request, refused)
    name, password = form.get("name", ""), form.get("password", "")
    if not (0 < len(name) <= MAX_NAME_CHARACTERS and 0 < len(password) <= MAX_PASSWORD_CHARACTERS):
        return _form(request, place, "a name and a password are needed", name, 400)
    settings = {**place.cluster.settings, "sasl_plain_username": name, "sasl_plain_password": password}
    link = Link(place.cluster.bootstrap, settings)
    site = _site_of(request)
    async with site.capacity.logins:
        try:
            await link.admin()
        except (KafkaError, ConfigError) as error:
            await link.close()
            await asyncio.sleep(FAILED_LOGIN_SECONDS)
            if isinstance(error, AuthenticationFailed | ConfigError):
                return _form(request, place, "the cluster does not know this name with this password", name, 401)
            return _form(request, place, describe(error, place.cluster.bootstrap), name, 503)
    token, session = await site.sessions.begin(f"sasl:{name}", request.cookies.get(COOKIE))
    before = session.consoles.get(place.cluster.name)
    # There must be no await between the start of the session and this line: otherwise the session could end in between,
    # and would not close this console.
    session.consoles[place.cluster.name] = site.open_console(place, link, name)
    if before is not None:
        await before.close()
    response = RedirectResponse(_wanted(request.query_params.get("next")), 303)
    set_cookie(response, token, is_secure=site.is_secure)
    return response


async def logout(request: Request) -> Response:
    """End the session in all clusters."""
    console = console_of(request)
    try:
        form = await form_of(request)
    except Refused as refused:
        return error_page(request, refused)
    if not console.token.is_right(form.get("token", "")):
        return error_page(request, Refused("this form is of another session: load its page again", 403))
    site = _site_of(request)
    await site.sessions.end(request.cookies.get(COOKIE))
    response = render(request, "logged-out.html", console=None)
    response.delete_cookie(COOKIE, path="/")
    return response


async def start_oidc(request: Request) -> Response:
    """Redirect to the identity provider."""
    site = _site_of(request)
    if site.oidc is None:
        return error_page(request, Refused("no identity provider is configured", 404))
    request.session.clear()
    request.session["next"] = _after(site, request)
    try:
        return await site.oidc.redirect(request)
    except LoginFailed as failed:
        return error_page(request, Refused(str(failed), 502))


async def end_oidc(request: Request) -> Response:
    """Handle the redirect back from the identity provider."""
    site = _site_of(request)
    if site.oidc is None:
        return error_page(request, Refused("no identity provider is configured", 404))
    after = str(request.session.get("next", "/"))
    try:
        login_there = await site.oidc.login(request)
    except LoginFailed as failed:
        request.session.clear()
        return error_page(request, Refused(str(failed), 401))
    request.session.clear()
    token, session = await site.sessions.begin(f"oidc:{login_there.user}", request.cookies.get(COOKIE))
    if session.oidc is not None:
        await session.close()
    session.oidc = login_there
    # Send a page instead of a redirect, because the browser would follow a redirect as a request from the provider's
    # site, without the session's cookie.
    response = render(request, "logged-in.html", console=None, after=after if is_ours(after) else "/")
    set_cookie(response, token, is_secure=site.is_secure)
    return response


def _form(request: Request, place: Place, problem: str | None = None, name: str = "", status: int = 200) -> Response:
    action = url("/login", next=request.query_params.get("next"))
    return render(
        request, "login.html", status, console=None, cluster=place.cluster, problem=problem, name=name, action=action
    )


def _wanted(given: str | None) -> str:
    """Return the path in this cluster to show after a login; never a path of another site."""
    return url(given) if given is not None and is_ours(given) else url("/")


def _after(site: Site, request: Request) -> str:
    """Return the path to show after the login at the identity provider: a page of one of the console's clusters."""
    name, given = request.query_params.get("cluster"), request.query_params.get("next", "/")
    prefix = next((place.prefix for place in site.places if place.cluster.name == name), "")
    return prefix + given if is_ours(given) and len(given) <= MAX_NEXT_CHARACTERS else f"{prefix}/"


def _place_of(request: Request) -> Place:
    place: Place = request.scope["place"]
    return place


def _site_of(request: Request) -> Site:
    site: Site = request.app.state.site
    return site
