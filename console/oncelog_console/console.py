"""State shared by all pages: the cluster, recently loaded values, and whether changes are allowed."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from oncelog_console.guard import Token
from oncelog_console.limits import MAX_PAGES
from oncelog_console.link import Link, Shared
from oncelog_console.lookups.lag_history import LagHistory
from oncelog_console.lookups.query_history import QueryHistories
from oncelog_console.values.workers import Workers

MAX_NOTICES: Final = 32


class Notices:
    """Messages about completed changes, shown on the next page: under an unguessable name."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, str] = OrderedDict()

    def add(self, text: str) -> str:
        """The name under which `get` knows it."""
        name = secrets.token_urlsafe(8)
        self._texts[name] = text
        while len(self._texts) > MAX_NOTICES:
            self._texts.popitem(last=False)
        return name

    def get(self, name: str) -> str | None:
        return self._texts.get(name)


@dataclass(slots=True)
class Console:
    """One console per application. `tails`: the live ones."""

    link: Link
    allows_changes: bool = False
    token: Token = field(default_factory=Token)
    notices: Notices = field(default_factory=Notices)
    shared: Shared[Any] = field(default_factory=Shared)
    workers: Workers = field(default_factory=Workers)
    pages: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_PAGES))
    tails: int = 0
    query_addresses: tuple[str, ...] = ()
    """The addresses at which Spark drivers serve the metrics of their queries."""
    history: LagHistory = field(init=False)
    queries: QueryHistories = field(init=False)

    def __post_init__(self) -> None:
        self.history = LagHistory(self.link)
        self.queries = QueryHistories(self.query_addresses)
