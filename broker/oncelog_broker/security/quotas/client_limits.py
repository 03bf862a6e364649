"""All quotas of one client, as found once and remembered with its connection, and which of them it has used.

Whoever has used too much waits on the connection that used it. A connection that has used nothing yet has nothing to
wait for, so it is asked to wait before its first request instead: else a new connection for each request would escape
the quota (S95). What that request uses is charged when it begins to wait, so it has its place before what others use
meanwhile.
"""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

from oncelog_broker.security.principal import Principal
from oncelog_broker.security.quotas.limits import Limit
from oncelog_protocol.quotas import QuotaKey

NEXT_TO_NOTHING: Final = sys.float_info.min
"""Charged before to a request that is served at once, whatever others have used."""


class ClientLimits(NamedTuple):
    """The quotas that hold for a client, as long as they stay as they are and it is the same client."""

    epoch: object
    principal: Principal
    client_id: str | None
    produce: Limit | None = None
    fetch: Limit | None = None
    request: Limit | None = None
    mutation: Limit | None = None
    charged: dict[QuotaKey, float] = {}  # noqa: RUF012 - each connection's own, given by `Throttling`
    """The quotas that requests of this connection have used: what these used too much, the connection waits for. With
    each, how much the next request has been charged before: it was put off, and is not asked again. Else 0."""

    def serve_next(self) -> None:
        """The next request is not put off."""
        for key in QuotaKey:
            self.charged[key] = self.charged.get(key) or NEXT_TO_NOTHING

    @property
    def are_none(self) -> bool:
        return self.produce is self.fetch is self.request is self.mutation is None
