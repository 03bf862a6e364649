"""/connect and /connector: connectors of Kafka Connect; /connector/restart: confirmation, and a restart by a form."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from oncelog.admin import Admin, AlterConfig, AlterOperation, ConfigResource
from oncelog.escaping import shell_quoted
from oncelog_console.clusters import Login
from oncelog_console.lookups.connect import Connect, ConnectFailed, Connector, restart_path
from oncelog_console.pages.page_request import Form, admin_of, change, console_of, done, number_of, page, text_of
from oncelog_console.rendering import Refused, render

HARMLESS_KEY = "log.cleaner.threads"
"""A broker setting that is not changed: the console only checks whether the user may change it."""
MAX_TASK = 100_000


@page
async def connect(request: Request) -> Response:
    at = request.scope["place"].connect

    async def asked(name: str) -> tuple[str, Connect, list[Connector], str | None]:
        try:
            return name, at[name], await at[name].connectors(), None
        except ConnectFailed as failed:
            return name, at[name], [], str(failed)

    async def load() -> list[tuple[str, Connect, list[Connector], str | None]]:
        return await asyncio.gather(*(asked(name) for name in sorted(at)))

    found = await console_of(request).shared.get("connect", load)
    return render(request, "connect.html", found=found)


@page
async def connector(request: Request) -> Response:
    at, where = _connect_of(request)
    name = text_of(request.query_params.get("name"), "name")
    try:
        found = await at.connector(name)
    except ConnectFailed as failed:
        raise Refused(f"Kafka Connect at {at.shown}: {failed}", 502) from failed
    return render(request, "connector.html", at=at, where=where, connector=found)


@page
async def ask_restart(request: Request) -> Response:
    at, where = _connect_of(request)
    name, task, only_failed = _wanted(request)
    try:
        path = restart_path(name, task=task, only_failed=only_failed)
    except ConnectFailed as failed:
        raise Refused(str(failed)) from failed
    command = f"curl -X POST {shell_quoted(at.shown.rstrip('/') + path)}"
    return render(
        request, "connector-restart.html", where=where, name=name, task=task, only_failed=only_failed, command=command
    )


@change
async def restart(request: Request, _: Form) -> Response:
    at, where = _connect_of(request)
    name, task, only_failed = _wanted(request)
    if console_of(request).cluster.login is not Login.NONE:
        await _check_rights(await admin_of(request))
    try:
        await at.restart(name, task=task, only_failed=only_failed)
    except ConnectFailed as failed:
        raise Refused(f"Kafka Connect at {at.shown}: {failed}", 502) from failed
    what = name if task is None else f"task {task} of {name}"
    return done(request, f"Restarted {what}.", "/connector", at=where, name=name)


async def _check_rights(admin: Admin) -> None:
    """Raise an error unless the user may change the settings of brokers, because Kafka Connect does not know who has
    logged in to the console. Users who may change the settings of brokers may restart connectors. Raises
    AuthorizationFailed.
    """
    change = AlterConfig(HARMLESS_KEY, None, AlterOperation.DELETE)
    await admin.incremental_alter_configs({ConfigResource.broker(): [change]}, validate_only=True)


def _connect_of(request: Request) -> tuple[Connect, str]:
    """Return the Kafka Connect that a request names; it must be a configured one. Raises Refused."""
    where = text_of(request.query_params.get("at"), "at")
    at: Connect | None = request.scope["place"].connect.get(where)
    if at is None:
        raise Refused("there is no Kafka Connect of this name: see --connect", 404)
    return at, where


def _wanted(request: Request) -> tuple[str, int | None, bool]:
    """Return the connector's name, the task, and whether only failed tasks are restarted. Raises Refused."""
    given = request.query_params
    task = None if given.get("task") is None else number_of(given["task"], "task", MAX_TASK)
    return text_of(given.get("name"), "name"), task, given.get("failed") == "1"
