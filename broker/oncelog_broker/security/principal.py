"""Who somebody turned out to be: what a TLS certificate or a SASL exchange proved, and what ACLs and quotas name."""

from __future__ import annotations

from typing import Final, NamedTuple

USER_TYPE: Final = "User"


class Principal(NamedTuple):
    """`User:alice`. Kafka knows no other type, yet the text form carries it, as ACLs do."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER_TYPE, "ANONYMOUS")
"""Whoever comes through a listener that asks for no proof, as in Kafka."""


def parse_principal(text: str) -> Principal:
    """`User:alice`; the name may have colons of its own. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{text!r} is no principal: expected User:name")
    return Principal(kind, name)
