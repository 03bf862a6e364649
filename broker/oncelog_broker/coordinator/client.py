"""The client id and host of the sender of a request. Responses that describe groups and transactions contain them."""

from __future__ import annotations

from oncelog_protocol.light_classes import NamedTuple


class Client(NamedTuple):
    """The client that sent a request. `host` is the client's IP address in Kafka's notation: "/127.0.0.1"."""

    client_id: str
    host: str
