"""/change/KIND: the form of a change, its preview with the equivalent command, and its execution.

The preview contains the form's fields as hidden fields, so that exactly the previewed change is executed.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from oncelog.cli.running import describe
from oncelog.errors import AuthorizationFailed, ConfigError, KafkaError
from oncelog_console.changes.change import BadField, Change, Fields
from oncelog_console.changes.kinds import KINDS
from oncelog_console.pages.page_request import Form, change, console_of, done, page
from oncelog_console.rendering import Refused, render
from oncelog_console.urls import url

STEP, SHOW, DO = "step", "show", "do"
OWN_FIELDS = frozenset({"token", STEP})


@page
async def ask(request: Request) -> Response:
    """Show the form of a change. A change without a form is described by its URL; for such a change, show the
    preview.
    """
    kind = _kind(request)
    given = dict(request.query_params)
    if kind.has_form:
        return _shown(request, kind, given)
    return await _previewed(request, kind, given, {})


@change
async def submit(request: Request, form: Form) -> Response:
    """Show the preview, or, if it is confirmed, apply the change."""
    kind = _kind(request)
    typed = {name: value for name, value in form.items() if name not in OWN_FIELDS}
    given = dict(request.query_params) | typed
    if form.get(STEP) != DO and not kind.is_secret:
        return await _previewed(request, kind, given, typed)
    link = console_of(request).link
    try:
        wanted = kind.from_fields(Fields(given))
        text = await wanted.apply(link)
    except (BadField, ConfigError, KafkaError) as error:
        return _shown(request, kind, given, problem=_problem(error, link.bootstrap), status=_status(error))
    path, parameters = wanted.back
    return done(request, f"{text} The command that does the same: {wanted.command(link.bootstrap)}", path, **parameters)


def _kind(request: Request) -> type[Change]:
    kind = KINDS.get(request.path_params["kind"])
    if kind is None:
        raise Refused("there is no such kind of change", 404)
    return kind


async def _previewed(
    request: Request, kind: type[Change], given: Mapping[str, str], typed: Mapping[str, str]
) -> Response:
    link = console_of(request).link
    try:
        wanted = kind.from_fields(Fields(given))
        preview = await wanted.preview(link)
    except (BadField, ConfigError, KafkaError) as error:
        return _shown(request, kind, given, problem=_problem(error, link.bootstrap), status=_status(error))
    return _shown(
        request, kind, given, wanted=wanted, preview=preview, command=wanted.command(link.bootstrap), typed=typed
    )


def _shown(
    request: Request, kind: type[Change], given: Mapping[str, str], *, status: int = 200, **values: object
) -> Response:
    """`given`: the fields of the form that the user has filled in; a form with a secret field is shown empty."""
    shown: dict[str, object] = {"wanted": None, "preview": None, "command": None, "typed": {}, "problem": None}
    fields = {} if kind.is_secret else given
    action = url(f"/change/{kind.name_in_url}", **dict(request.query_params))
    return render(
        request,
        "change.html",
        status,
        kind=kind,
        form=f"changes/{kind.name_in_url}.html" if kind.has_form else None,
        fields={**dict(request.query_params), **fields},
        action=action,
        **(shown | values),
    )


def _problem(error: Exception, bootstrap: str) -> str:
    if isinstance(error, AuthorizationFailed):
        return f"{describe(error, bootstrap)}. The user lacks a right: oncelog acls add gives it."
    if isinstance(error, KafkaError):
        return describe(error, bootstrap)
    return str(error)


def _status(error: Exception) -> int:
    if isinstance(error, AuthorizationFailed):
        return 403
    return 409 if isinstance(error, KafkaError) and not isinstance(error, ConfigError) else 400
