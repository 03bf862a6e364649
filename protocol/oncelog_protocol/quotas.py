"""Quota entities and the kinds of quotas (KIP-13, KIP-124, KIP-599, KIP-612)."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final, TypeAlias

from oncelog_protocol.light_classes import NamedTuple


class Default(Enum):
    """A marker in the place of a name, for the default quota of entities without their own quota. The marker is not a
    string, because a name may be any text.
    """

    ENTITY = "<default>"


DEFAULT: Final = Default.ENTITY
Name: TypeAlias = str | Default | None
"""The user, the client id or the address of a quota entity: a name or DEFAULT; None means that the entity does not have
this part.
"""


class QuotaEntity(NamedTuple):
    """The entity of a quota: a user, a client id, both, or an address."""

    user: Name = None
    client_id: Name = None
    ip: Name = None


class QuotaKey(StrEnum):
    """The kinds of quotas, by Kafka's names."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    """Maximum percentage of the time of one processor that requests may use. The broker cannot use more than 100
    percent, because one thread serves all requests.
    """
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    """Maximum number of partitions created and deleted per second."""
    CONNECTION_CREATION_RATE = "connection_creation_rate"
    """Maximum number of new connections per second from one address."""


OF_ADDRESSES: Final = frozenset({QuotaKey.CONNECTION_CREATION_RATE})
OF_CLIENTS: Final = frozenset(QuotaKey) - OF_ADDRESSES
FRACTIONS: Final = frozenset({QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE})
"""Quotas whose values may be fractions; the values of all other quotas are integers."""


def keys_of(entity: QuotaEntity) -> frozenset[QuotaKey]:
    """Return the kinds of quotas that the entity can have."""
    return OF_CLIENTS if entity.ip is None else OF_ADDRESSES
