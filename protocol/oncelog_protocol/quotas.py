"""Quotas: whom they are set for, and what they limit (KIP-13, KIP-124, KIP-599, KIP-612)."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final, NamedTuple, TypeAlias


class Default(Enum):
    """In the place of a name, which may be any text: all those who have no quota of their own."""

    ENTITY = "<default>"


DEFAULT: Final = Default.ENTITY
Name: TypeAlias = str | Default | None
"""None: the entity has no such part."""


class QuotaEntity(NamedTuple):
    """Whom a quota is set for: a user, a client id, both together, or an address."""

    user: Name = None
    client_id: Name = None
    ip: Name = None


class QuotaKey(StrEnum):
    """What is limited, by Kafka's names."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    """Of one processor's time; the broker has one, as its requests are served by one thread."""
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    """Partitions that are created and deleted, each second."""
    CONNECTION_CREATION_RATE = "connection_creation_rate"
    """Of an address, each second."""


OF_ADDRESSES: Final = frozenset({QuotaKey.CONNECTION_CREATION_RATE})
OF_CLIENTS: Final = frozenset(QuotaKey) - OF_ADDRESSES
FRACTIONS: Final = frozenset({QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE})
"""The values of the others are whole numbers."""


def keys_of(entity: QuotaEntity) -> frozenset[QuotaKey]:
    """What may be limited."""
    return OF_CLIENTS if entity.ip is None else OF_ADDRESSES
