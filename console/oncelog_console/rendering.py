"""HTML: templates, the common parts of pages, and error pages."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from oncelog.cli.offsets import format_timestamp
from oncelog.cli.running import describe
from oncelog.cli.top import duration
from oncelog.clock import now_ms
from oncelog.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    ConnectionFailed,
    ErrorCode,
    KafkaError,
    RequestTimedOut,
)
from oncelog_console.urls import url
from oncelog_console.visible_text import byte_count, bytes_shown, finalized, number, plural, read_shown, short

if TYPE_CHECKING:
    from starlette.requests import Request

    from oncelog_console.console import Console

DAY_MS: Final = 86_400_000
HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"
NOT_FOUND: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)


class Refused(Exception):
    """Raised if the request is invalid or not allowed. The page shows the message."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def moment(timestamp_ms: int | None) -> str | None:
    """Return the time in UTC; None without a timestamp."""
    return None if timestamp_ms is None or timestamp_ms < 0 else format_timestamp(timestamp_ms).replace("T", " ")


def age(since_ms: int | None, now: int | None = None) -> str | None:
    if since_ms is None:
        return None
    passed_ms = max(0, (now_ms() if now is None else now) - since_ms)
    return f"{passed_ms // DAY_MS} days" if passed_ms >= 2 * DAY_MS else duration(passed_ms / 1000)


def unchanged(text: str) -> Markup:
    """Return the value of a form field for a template: only HTML is escaped, because the browser sends
    the value back.
    """
    return escape(text)


def _pairs(names: list[str]) -> list[tuple[str, str]]:
    """Return the choices of a form field as pairs of value and label; both have the same text."""
    return [(name, name) for name in names]


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {"url": url, "bytes_shown": bytes_shown, "read_shown": read_shown, "unchanged": unchanged}
    made.filters |= {
        "age": age,
        "bytes": byte_count,
        "moment": moment,
        "number": number,
        "pairs": _pairs,
        "plural": plural,
        "short": short,
    }
    return made


def render(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a template as a page. The ASGI scope has the console (the state of the cluster) of the page; pages outside
    a cluster have none.
    """
    console: Console | None = request.scope.get("console")
    notice = None if console is None else console.notices.get(request.query_params.get("notice", ""))
    given = {"console": console, "notice": notice, "has_several": request.app.state.site.has_several} | values
    text = environment().get_template(template).render(**given)
    return HTMLResponse(text.encode("utf-8", "replace"), status)


def error_page(request: Request, error: Exception) -> HTMLResponse:
    """Return the page for an error, with the remedy."""
    console: Console | None = request.scope.get("console")
    bootstrap = "the cluster" if console is None else console.link.bootstrap
    status, title, why, advice = explained(error, bootstrap)
    return render(request, "error.html", status, title=title, why=why, advice=advice, retries=status in (503, 504))


def explained(error: Exception, bootstrap: str) -> tuple[int, str, str, str]:
    """Return the status, the title, the error, and the remedy."""
    match error:
        case Refused():
            return error.status, "This cannot be done", error.message, ""
        case TimeoutError():
            why = f"the cluster at {bootstrap} did not answer in time"
            return 504, "No answer in time", why, "It may be busy, or a coordinator loads. This page tries again."
        case ConnectionFailed():
            advice = "This page tries again by itself. Another address: oncelog console --bootstrap-server HOST:PORT"
            return 503, "The cluster cannot be reached", describe(error, bootstrap), advice
        case AuthenticationFailed():
            advice = "Start the console with --command-config client.properties, which says how to log in."
            return 502, "The cluster does not let us in", describe(error, bootstrap), advice
        case AuthorizationFailed():
            advice = "The console has the rights of its user. Use oncelog acls add to grant more."
            return 403, "Not allowed", describe(error, bootstrap), advice
        case RequestTimedOut():
            advice = "A broker may be away: is the cluster up? This page tries again."
            return 504, "No answer in time", describe(error, bootstrap), advice
        case KafkaError() if error.code in NOT_FOUND:
            return 404, "Not found", describe(error, bootstrap), "It may have been deleted."
        case KafkaError():
            return 502, "The cluster refuses", describe(error, bootstrap), ""
    raise error
