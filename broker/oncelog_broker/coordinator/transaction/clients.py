"""Remembers which client uses a transactional id, for an operator who looks for the transaction that holds readers
back.

Kept in memory only, and used for no decision: after a start, a broker knows no client until its producer sends the next
request.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from oncelog_broker.coordinator.client import Client

MAX_CLIENTS: Final = 10_000
"""The most clients that are remembered, the newest ones: they take one or two megabytes. A client with an open
transaction is among them, as it has sent a request not long ago."""
MAX_CLIENT_ID_CHARS: Final = 255
"""Longer client ids are cut, so that the memory stays small."""


class LastClients:
    """Transactional id -> the client that has last initialised it or ended a transaction, as only its owner can."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, Client] = OrderedDict()

    def note(self, transactional_id: str, client: Client) -> None:
        """Remember `client`, whose request was just accepted, as the owner of `transactional_id`."""
        self._clients[transactional_id] = client._replace(client_id=client.client_id[:MAX_CLIENT_ID_CHARS])
        self._clients.move_to_end(transactional_id)
        if len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)

    def of(self, transactional_id: str) -> Client | None:
        return self._clients.get(transactional_id)
