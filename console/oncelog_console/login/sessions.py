"""Sessions of users who have logged in: each has an unguessable token in a cookie, and their number and duration are
limited.

Invariants: a session begins with a login, and gets a new token at each further login. A session ends after
MAX_SESSION_SECONDS, or IDLE_SECONDS after its last request, or if more than MAX_SESSIONS sessions are open and this
session has been idle longest.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from oncelog_console.limits import IDLE_SECONDS, MAX_SESSION_SECONDS, MAX_SESSIONS, MAX_SESSIONS_OF_USER

if TYPE_CHECKING:
    from oncelog_console.console import Console
    from oncelog_console.login.oidc import OidcLogin


@dataclass(slots=True)
class Session:
    """`consoles`: the states of the clusters that this session uses, by cluster name. `begun` and `used`: the times of
    the login and of the last request, in seconds of the sessions' clock.
    """

    begun: float
    used: float
    user: str
    consoles: dict[str, Console] = field(default_factory=dict)
    oidc: OidcLogin | None = None

    async def close(self) -> None:
        """Close the consoles of this session."""
        consoles, self.consoles = list(self.consoles.values()), {}
        for console in consoles:
            await console.close()
        if self.oidc is not None:
            await self.oidc.close()
            self.oidc = None


class Sessions:
    """All sessions; the session that has been idle longest comes first."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._open: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, token: str | None) -> Session | None:
        """Return the session of a token, and set its last use to now; None if the token has no session or the session
        has ended.
        """
        session = None if token is None else self._open.get(token)
        if session is None or token is None or self._is_over(session):
            return None
        session.used = self._clock()
        self._open.move_to_end(token)
        return session

    async def begin(self, user: str, before: str | None = None) -> tuple[str, Session]:
        """Start a session for a user who has just logged in; returns its token and the session. `before`: the token of
        the visitor's present session; if this session belongs to the same user, it continues under the new token.
        """
        now = self._clock()
        session = None if before is None else self._open.pop(before, None)
        if session is not None and (session.user != user or self._is_over(session)):
            await session.close()
            session = None
        if session is None:
            session = Session(now, now, user)
        await self._make_room(user)
        token = secrets.token_urlsafe(32)
        self._open[token] = session
        session.used = now
        return token, session

    async def end(self, token: str | None) -> None:
        """End the session of a token, if it exists."""
        session = None if token is None else self._open.pop(token, None)
        if session is not None:
            await session.close()

    async def sweep(self) -> None:
        """End the sessions whose time is over."""
        for token in [token for token, session in self._open.items() if self._is_over(session)]:
            await self.end(token)

    async def close(self) -> None:
        """End all sessions."""
        for token in list(self._open):
            await self.end(token)

    def _is_over(self, session: Session) -> bool:
        now = self._clock()
        return now - session.begun > MAX_SESSION_SECONDS or now - session.used > IDLE_SECONDS

    async def _make_room(self, user: str) -> None:
        """End the sessions that have been idle longest, until the limits allow another session of this user."""
        mine = [token for token, session in self._open.items() if session.user == user]
        for token in mine[: max(0, len(mine) + 1 - MAX_SESSIONS_OF_USER)]:
            await self.end(token)
        while len(self._open) >= MAX_SESSIONS:
            await self.end(next(iter(self._open)))
