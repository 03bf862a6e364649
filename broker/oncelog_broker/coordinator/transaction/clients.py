"""Stores which client uses a transactional id. If an open transaction blocks readers, an operator can find its client.

The clients are stored only in memory, and no decision depends on them. After a broker has started, it does not know
which client uses a transactional id until the producer sends its next request.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from oncelog_broker.coordinator.client import Client

MAX_CLIENTS: Final = 10_000
"""Maximum number of stored clients; they take one or two megabytes. When there are more, the client whose last request
is the oldest is removed. A client with an open transaction is usually still stored, because its last request is recent.
"""
MAX_CLIENT_ID_CHARS: Final = 255
"""Maximum characters of a stored client id; longer client ids are cut."""


class LastClients:
    """Transactional id -> the client that last initialised the transactional id or ended one of its transactions. Only
    the present owner of the transactional id can do these two things.
    """

    def __init__(self) -> None:
        self._clients: OrderedDict[str, Client] = OrderedDict()

    def note(self, transactional_id: str, client: Client) -> None:
        """Remember `client`, whose request was just accepted, as the owner of `transactional_id`."""
        if len(client.client_id) > MAX_CLIENT_ID_CHARS:
            client = client._replace(client_id=client.client_id[:MAX_CLIENT_ID_CHARS])
        self._clients[transactional_id] = client
        self._clients.move_to_end(transactional_id)
        if len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)

    def of(self, transactional_id: str) -> Client | None:
        return self._clients.get(transactional_id)
