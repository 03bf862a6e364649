"""The state that the pages of one cluster share for one user, and the state that all pages share."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from oncelog_console.clusters import Cluster
from oncelog_console.guard import Token
from oncelog_console.limits import MAX_LOGINS, MAX_PAGES
from oncelog_console.link import Link, Shared
from oncelog_console.lookups.lag_history import LagHistory
from oncelog_console.lookups.query_history import QueryHistories
from oncelog_console.values.reader import ValueReader

MAX_NOTICES: Final = 32


class Notices:
    """Messages about completed changes, which the next page shows; each has an unguessable name."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, str] = OrderedDict()

    def add(self, text: str) -> str:
        """Add a message; returns its name for `get`."""
        name = secrets.token_urlsafe(8)
        self._texts[name] = text
        while len(self._texts) > MAX_NOTICES:
            self._texts.popitem(last=False)
        return name

    def get(self, name: str) -> str | None:
        return self._texts.get(name)


@dataclass(slots=True)
class Capacity:
    """The limits that the pages of all users and clusters share. `tails`: the number of live tails (pages that show new
    records as they arrive). `logins`: a semaphore that limits the concurrent logins whose password a broker is
    checking.
    """

    pages: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_PAGES))
    tails: int = 0
    logins: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_LOGINS))


@dataclass(slots=True)
class Console:
    """The state of one cluster for all visitors or, if users log in, for one session. `user`: the user who has logged
    in; None without login. `values` and `queries` are shared by all users of the cluster.
    """

    cluster: Cluster
    link: Link
    values: ValueReader
    queries: QueryHistories
    capacity: Capacity
    user: str | None = None
    token: Token = field(default_factory=Token)
    notices: Notices = field(default_factory=Notices)
    shared: Shared[Any] = field(default_factory=Shared)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the end of a session, so that the session's live tails (pages with new records) end."""
    history: LagHistory = field(init=False)
    _sampling: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.history = LagHistory(self.link)

    @property
    def allows_changes(self) -> bool:
        return self.cluster.allows_changes

    def begin(self) -> None:
        """Start to sample the lag of groups."""
        self._sampling = asyncio.create_task(self.history.run())

    async def close(self) -> None:
        """Stop all background work, and close the connections."""
        self.closed.set()
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)
            self._sampling = None
        await self.shared.close()
        await self.link.close()
