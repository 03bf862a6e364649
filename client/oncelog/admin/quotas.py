"""Describes and changes quotas of users, client ids and addresses (KIP-546).

The values are those of `oncelog_protocol.quotas`: a QuotaEntity has a user, a client id, both, or an ip, each of which
may be DEFAULT; a QuotaKey is the kind of quota.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from oncelog.admin.calls import Calls
from oncelog.admin.items import Outcomes, sorted_out
from oncelog.cluster import NO_NODE
from oncelog.errors import ConfigError, error_for
from oncelog_protocol.quotas import DEFAULT, Default, Name, QuotaEntity, QuotaKey

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES: Final = (USER, CLIENT_ID, IP)
EXACT, DEFAULT_ENTITY, SPECIFIED = 0, 1, 2
Quotas: TypeAlias = dict[QuotaEntity, dict[str, float]]


class AnyName(NamedTuple):
    """A filter value that matches every name and the default."""


ANY_NAME: Final = AnyName()


class QuotaFilter(NamedTuple):
    """Selects entities: each field is a name, DEFAULT, ANY_NAME or None. A None field matches entities with or without
    that part (user, client id or ip). With `is_strict`, a None field matches only entities without that part.
    """

    user: Name | AnyName = None
    client_id: Name | AnyName = None
    ip: Name | AnyName = None
    is_strict: bool = False


EVERY_QUOTA: Final = QuotaFilter()


class QuotaAlteration(NamedTuple):
    """Changes of an entity's quotas; the value None removes a quota. Quotas that are not named keep their values."""

    entity: QuotaEntity
    changes: Mapping[QuotaKey | str, float | None]


async def describe_client_quotas(calls: Calls, which: QuotaFilter = EVERY_QUOTA) -> Quotas:
    """See `Admin.describe_client_quotas`. Raises KafkaError."""
    from oncelog_protocol.messages.describe_client_quotas import DescribeClientQuotasRequest

    def component(kind: str, name: str | Default | AnyName) -> DescribeClientQuotasRequest.ComponentData:
        match_type = SPECIFIED if isinstance(name, AnyName) else DEFAULT_ENTITY if name is DEFAULT else EXACT
        return DescribeClientQuotasRequest.ComponentData(
            entity_type=kind, match_type=match_type, match=name if isinstance(name, str) else None
        )

    named = zip(TYPES, which[:3], strict=True)
    components = [component(kind, name) for kind, name in named if name is not None]
    answer = await calls.send_to(NO_NODE, DescribeClientQuotasRequest(components=components, strict=which.is_strict))
    if answer.error_code:
        raise error_for(answer.error_code, answer.error_message)
    found: Quotas = {}
    for entry in answer.entries or ():
        names = {part.entity_type: DEFAULT if part.entity_name is None else part.entity_name for part in entry.entity}
        if names.keys() <= set(TYPES):
            entity = QuotaEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))
            found[entity] = {value.key: value.value for value in entry.values}
    return found


async def alter_client_quotas(calls: Calls, alterations: Iterable[QuotaAlteration], validate_only: bool) -> None:
    """See `Admin.alter_client_quotas`. Raises KafkaError, PartialFailure; ConfigError for an entity that is named
    twice.
    """
    from oncelog_protocol.messages.alter_client_quotas import AlterClientQuotasRequest

    def entry(entity: QuotaEntity) -> AlterClientQuotasRequest.EntryData:
        parts = [
            AlterClientQuotasRequest.EntryData.EntityData(
                entity_type=kind, entity_name=name if isinstance(name, str) else None
            )
            for kind, name in zip(TYPES, entity, strict=True)
            if name is not None
        ]
        ops = [
            AlterClientQuotasRequest.EntryData.OpData(key=str(key), value=float(value or 0), remove=value is None)
            for key, value in wanted[entity].items()
        ]
        return AlterClientQuotasRequest.EntryData(entity=parts, ops=ops)

    async def ask(some: list[QuotaEntity]) -> Outcomes[QuotaEntity, None]:
        request = AlterClientQuotasRequest(entries=[entry(entity) for entity in some], validate_only=validate_only)
        answer = await calls.send_to(NO_NODE, request)
        by_parts = {frozenset((part.entity_type, part.entity_name) for part in entry(e).entity): e for e in some}
        return sorted_out(
            (by_parts[parts], result.error_code, result.error_message, None)
            for result in answer.entries
            if (parts := frozenset((part.entity_type, part.entity_name) for part in result.entity)) in by_parts
        )

    wanted: dict[QuotaEntity, Mapping[QuotaKey | str, float | None]] = {}
    for alteration in alterations:
        if alteration.entity in wanted:
            raise ConfigError(f"{alteration.entity} is named twice")
        wanted[alteration.entity] = alteration.changes
    await calls.each(wanted, ask, None)
