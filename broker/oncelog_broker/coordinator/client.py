"""The sender of a request, as the commands that describe groups and transactions show it."""

from __future__ import annotations

from typing import NamedTuple


class Client(NamedTuple):
    """`host` as Kafka writes it: "/127.0.0.1"."""

    client_id: str
    host: str
