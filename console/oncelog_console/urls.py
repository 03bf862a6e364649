"""(pure) URLs of the console's pages: several clusters have their pages below prefixes."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final
from urllib.parse import urlencode

PREFIX: Final = ContextVar("prefix", default="")
"""Prefix of the path of every page of the requested cluster: "" or "/c/NAME"."""


def url(path: str, **query: object) -> str:
    """Return a URL of the console in the requested cluster, without parameters that are None."""
    return addressed(f"{PREFIX.get()}{path}", **query)


def addressed(path: str, **query: object) -> str:
    """Return a path with parameters, without parameters that are None. Half a surrogate pair is replaced by `?`,
    because no URL can contain it; a name in another server's response may contain one.
    """
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


def is_ours(path: str) -> bool:
    """Return whether a browser that follows this path stays on this site: the path has no other host and no control
    characters.
    """
    return path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
