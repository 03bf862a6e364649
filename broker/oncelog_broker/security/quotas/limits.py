"""Which quota holds for somebody: the most particular one that was set for their user and client id, as in Kafka.

    user and client id   /config/users/<user>/clients/<client>
    user and any client  /config/users/<user>/clients/<default>
    user                 /config/users/<user>
    any user, client id  /config/users/<default>/clients/<client>
    any user and client  /config/users/<default>/clients/<default>
    any user             /config/users/<default>
    client id            /config/clients/<client>
    any client           /config/clients/<default>

What was set for any user holds for each of them apart: they do not share it. All clients of a user share the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

DEFAULT: Final = "<default>"
"""In the place of a name: whoever has no quota of their own."""


class QuotaKey(StrEnum):
    """What is limited, by Kafka's name in the settings of users and client ids."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    """Of one processor's time."""
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    """Partitions that are created and deleted, each second."""


class Entity(NamedTuple):
    """Whom a quota was set for; None: that part is not named, DEFAULT: any."""

    user: str | None
    client_id: str | None


class Limit(NamedTuple):
    """A quota, and who shares it."""

    rate: float
    """Each second."""
    shared_by: Entity


Quotas = Mapping[Entity, Mapping[str, float]]
"""What was set, by the names of QuotaKey."""


def limit_for(user: str, client_id: str, key: QuotaKey, quotas: Quotas) -> Limit | None:
    """None: as much as they like."""
    both, of_user, of_client = Entity(user, client_id), Entity(user, None), Entity(None, client_id)
    for entity, shared_by in (
        (both, both),
        (Entity(user, DEFAULT), both),
        (of_user, of_user),
        (Entity(DEFAULT, client_id), both),
        (Entity(DEFAULT, DEFAULT), both),
        (Entity(DEFAULT, None), of_user),
        (of_client, of_client),
        (Entity(None, DEFAULT), of_client),
    ):
        rate = quotas.get(entity, {}).get(key)
        if rate is not None:
            return Limit(rate, shared_by)
    return None
