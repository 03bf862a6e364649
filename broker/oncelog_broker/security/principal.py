"""A principal: the identity that TLS or SASL has authenticated, and that ACLs and quotas name."""

from __future__ import annotations

from typing import Final

from oncelog_protocol.light_classes import NamedTuple

USER_TYPE: Final = "User"


class Principal(NamedTuple):
    """A principal, for example `User:alice`. Kafka has only the type User, but the text form of a principal includes
    the type, as in ACLs.
    """

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER_TYPE, "ANONYMOUS")
"""The principal on a listener without authentication, as in Kafka."""


def parse_principal(text: str) -> Principal:
    """Parse `User:alice`; the name may contain colons. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{text!r} is not a principal: expected User:name")
    return Principal(kind, name)
