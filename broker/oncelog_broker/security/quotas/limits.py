"""Finds the quota of a user and client id: the most specific quota that is set, as in Kafka.

    1  user and client id   /config/users/<user>/clients/<client>
    2  user and any client  /config/users/<user>/clients/<default>
    3  user                 /config/users/<user>
    4  any user, client id  /config/users/<default>/clients/<client>
    5  any user and client  /config/users/<default>/clients/<default>
    6  any user             /config/users/<default>
    7  client id            /config/clients/<client>
    8  any client           /config/clients/<default>

A quota for any user applies to each user separately. All clients of a user share the user's quota. Each kind of quota
is looked up separately.
"""

from __future__ import annotations

from oncelog_broker.metadata.model.quotas import Quotas
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.quotas import DEFAULT, QuotaEntity, QuotaKey


class Limit(NamedTuple):
    """A quota, and the entity whose clients share it."""

    rate: float
    """The value of the quota, in units per second."""
    shared_by: QuotaEntity


def limit_for(user: str, client_id: str, key: QuotaKey, quotas: Quotas) -> Limit | None:
    """Return the quota of a client; None means unlimited."""
    both, of_user, of_client = QuotaEntity(user, client_id), QuotaEntity(user), QuotaEntity(None, client_id)
    for entity, shared_by in (
        (both, both),
        (QuotaEntity(user, DEFAULT), both),
        (of_user, of_user),
        (QuotaEntity(DEFAULT, client_id), both),
        (QuotaEntity(DEFAULT, DEFAULT), both),
        (QuotaEntity(DEFAULT), of_user),
        (of_client, of_client),
        (QuotaEntity(None, DEFAULT), of_client),
    ):
        values = quotas.get(entity)
        if values is not None and key in values:
            return Limit(values[key], shared_by)
    return None


def limit_of_address(ip: str, quotas: Quotas) -> Limit | None:
    """Return the connection rate of an address, per second; None means unlimited."""
    for entity in (QuotaEntity(ip=ip), QuotaEntity(ip=DEFAULT)):
        rate = quotas.get(entity, {}).get(QuotaKey.CONNECTION_CREATION_RATE)
        if rate is not None:
            return Limit(rate, QuotaEntity(ip=ip))
    return None
