"""(pure) Addresses of our pages: several clusters have their pages below prefixes."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final
from urllib.parse import urlencode

PREFIX: Final = ContextVar("prefix", default="")
"""What stands before the path of every page of the cluster that is asked for: "" or "/c/NAME"."""


def url(path: str, **query: object) -> str:
    """A URL of ours in the cluster that is asked for, without parameters that are None."""
    return addressed(f"{PREFIX.get()}{path}", **query)


def addressed(path: str, **query: object) -> str:
    """A path with parameters, without those that are None. A name in the answer of another server may have half a
    surrogate pair, which no address can have: it becomes `?`."""
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


def is_ours(path: str) -> bool:
    """Whether a browser that is sent to this path stays on this site: no other host, no control characters."""
    return path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
