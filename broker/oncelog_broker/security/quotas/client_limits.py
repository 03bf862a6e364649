"""All quotas of one client, as found once and remembered with its connection."""

from __future__ import annotations

from typing import NamedTuple

from oncelog_broker.security.principal import Principal
from oncelog_broker.security.quotas.limits import Limit


class ClientLimits(NamedTuple):
    """The quotas that hold for a client, as long as they stay as they are and it is the same client."""

    epoch: object
    principal: Principal
    client_id: str | None
    produce: Limit | None = None
    fetch: Limit | None = None
    request: Limit | None = None
    mutation: Limit | None = None

    @property
    def are_none(self) -> bool:
        return self.produce is self.fetch is self.request is self.mutation is None
