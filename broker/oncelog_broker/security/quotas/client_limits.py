"""The quotas of one client, looked up once and stored with its connection, and the quotas that this connection has
used.

If a client has exceeded its quota, the connection that has used the quota waits. A new connection has used no quota
yet, so it waits before its first request. Without this wait, a client could evade the quota by opening a new connection
for each request (S95). The first request is charged when its wait begins, so that later usage by other clients does not
delay it further.
"""

from __future__ import annotations

import sys
from typing import Final

from oncelog_broker.security.principal import Principal
from oncelog_broker.security.quotas.limits import Limit
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.quotas import QuotaKey

NEXT_TO_NOTHING: Final = sys.float_info.min
"""A negligible amount that is charged in advance for a request that is served without delay, whatever other clients
have used.
"""


class ClientLimits(NamedTuple):
    """The quotas of one client, valid until quotas, user or client id change."""

    epoch: object
    principal: Principal
    client_id: str | None
    produce: Limit | None = None
    fetch: Limit | None = None
    request: Limit | None = None
    mutation: Limit | None = None
    charged: dict[QuotaKey, float] = {}  # noqa: RUF012 - each connection's own, given by `Throttling`
    """The quotas that requests of this connection have used, and for which the connection must wait when they are
    exceeded. The value for a quota is the amount that was charged in advance for the next request; 0 if nothing was
    charged in advance. The next request was delayed once for this amount, and must not be delayed again.
    """

    def serve_next(self) -> None:
        """Serve the next request without delay."""
        for key in QuotaKey:
            self.charged[key] = self.charged.get(key) or NEXT_TO_NOTHING

    @property
    def are_none(self) -> bool:
        return self.produce is self.fetch is self.request is self.mutation is None
