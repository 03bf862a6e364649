"""Quotas as metadata: whom they are set for, their names, and what of an entity's settings they are. Pure.

    user and client id   /config/users/<user>/clients/<client>
    user                 /config/users/<user>, beside SCRAM credentials
    client id            /config/clients/<client>
    address              /config/ips/<ip>

In the place of a name `<default>` stands for whoever has none of their own. Values are texts there, as all settings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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

Values: TypeAlias = Mapping[QuotaKey, float]
Quotas: TypeAlias = Mapping[QuotaEntity, Values]
"""What was set; an entity without quotas is not in it."""


MAX_NAME_CHARS: Final = 256
"""Of a user or client id that has quotas of its own; each may be nine in the name of a node."""


def keys_of(entity: QuotaEntity) -> frozenset[QuotaKey]:
    """What may be limited."""
    return OF_CLIENTS if entity.ip is None else OF_ADDRESSES


def quota_values(entity: QuotaEntity, settings: Mapping[str, str]) -> dict[QuotaKey, float]:
    """The quotas among the settings of an entity. What is no number above 0 limits nothing."""
    values = {}
    for key in keys_of(entity):
        text = settings.get(key)
        if text is not None:
            try:
                value = float(text)
            except ValueError:
                continue
            if value > 0 and math.isfinite(value):
                values[key] = value
    return values
