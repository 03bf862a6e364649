"""Which client works with a transactional id: for people who look for the one that holds a partition back.

Not part of the coordinator's state: nothing is decided by it, it is in no log, and a broker that starts knows nothing
until producers are heard of again. What the log must hold about them it holds.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from oncelog_broker.coordinator.client import Client

MAX_CLIENTS: Final = 10_000
"""The newest are remembered: a megabyte or two. Who has a transaction open was heard of not long ago."""
MAX_CLIENT_ID_CHARS: Final = 255
"""Clients may send more; what is remembered of so many must stay small."""


class LastClients:
    """The client that took a transactional id over, or ended a transaction of it, last: what only its owner can do."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, Client] = OrderedDict()

    def note(self, transactional_id: str, client: Client) -> None:
        """`client` was just granted a request as the owner of `transactional_id`."""
        self._clients[transactional_id] = client._replace(client_id=client.client_id[:MAX_CLIENT_ID_CHARS])
        self._clients.move_to_end(transactional_id)
        if len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)

    def of(self, transactional_id: str) -> Client | None:
        return self._clients.get(transactional_id)
