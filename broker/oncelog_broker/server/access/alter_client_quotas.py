"""AlterClientQuotas (49), v0-1: set and remove quotas of users, client ids and addresses (KIP-546, KIP-612).

Behaviour: each entity succeeds or fails independently; an entity fails with INVALID_REQUEST, and is not changed, if the
request names it twice or names one of its quota keys twice. The response contains each entity once. Removing a quota
that does not exist is no error. With validate_only nothing is changed. The response is sent when this broker enforces
the new quotas. Every broker serves this request.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from oncelog_broker.metadata.model.address_nodes import OtherNodes
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.slices import Pause, with_pauses
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.access.create_acls import until_decided_by
from oncelog_broker.server.access.quota_fields import TYPES, checked_value, entity_of, in_order
from oncelog_broker.server.access.services import AccessContext
from oncelog_broker.server.request.duplicate_names import counted
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from oncelog_protocol.quotas import QuotaEntity, keys_of

Entry = AlterClientQuotasRequest.EntryData
Result = AlterClientQuotasResponse.EntryData
Part = Result.EntityData
Changes = dict[str, str | None]
"""New values by quota key; None means that the quota is removed."""


def handle(request: AlterClientQuotasRequest, context: AccessContext) -> Answer[AlterClientQuotasResponse]:
    return context.in_a_task(_alter_all(request, context))


async def _alter_all(request: AlterClientQuotasRequest, context: AccessContext) -> AlterClientQuotasResponse:
    pauses = context.services.slices.pauses()
    may = context.may(rules.ALTER_QUOTAS)
    results: dict[frozenset[tuple[str, str | None]], Result] = {}
    wanted: list[tuple[QuotaEntity, Changes, Result]] = []
    for entry in request.entries:
        await pauses.here()
        # An entity may have one part (type and name) for each entity type. Read at most one part more than that. An
        # entity with this many parts is refused anyway, because it repeats a type or has an unknown type.
        named_parts = entry.entity[: len(TYPES) + 1]
        parts = [(part.entity_type, part.entity_name) for part in named_parts]
        shown = [Part(entity_type=kind, entity_name=name) for kind, name in in_order(parts)]
        result = Result(error_code=ErrorCode.NONE, entity=shown)
        result = results.setdefault(frozenset(parts), result)
        try:
            if not may:
                raise KafkaError(rules.ALTER_QUOTAS.refused)
            entity = entity_of(named_parts)
            wanted.append((entity, await _changes(entity, entry, pauses.here), result))
        except KafkaError as error:
            _fail(result, error)
    named = await with_pauses(counted(entity for entity, _, _ in wanted), pauses.here)
    others: OtherNodes | KafkaError | None = None
    for entity, changes, result in wanted:
        await pauses.here()
        try:
            if named[entity] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Ignoring duplicate entity: it is named twice.")
            if result.error_code == ErrorCode.NONE:
                if others is None and isinstance(entity.ip, str):
                    others = await _nodes_of_addresses(context, pauses.here)
                if isinstance(entity.ip, str) and isinstance(others, KafkaError):
                    _fail(result, others)
                    continue
                nodes = {} if others is None or isinstance(others, KafkaError) else others
                change = partial(_changed, changes=changes)
                await context.services.configs.alter_quotas(entity, change, request.validate_only, nodes)
        except KafkaError as error:
            _fail(result, error)
    if wanted and not request.validate_only:
        await until_decided_by(context)
    return AlterClientQuotasResponse(entries=list(results.values()))


async def _nodes_of_addresses(context: AccessContext, pause: Pause) -> OtherNodes | KafkaError:
    """Read the nodes of all addresses with one request to the metadata store. With one request for each address, a
    store that does not respond would cause one timeout after another.
    """
    try:
        return await context.services.configs.nodes_of_addresses(pause)
    except KafkaError as error:
        return error.as_value()


async def _changes(entity: QuotaEntity, entry: Entry, pause: Pause) -> Changes:
    """Return the changes of one entry; the removal of a key that is not a quota is ignored. Raises KafkaError
    INVALID_REQUEST for a repeated key or an invalid value.
    """
    changes: Changes = {}
    keys, named = keys_of(entity), set()
    for op in entry.ops:
        await pause()
        if op.key in named:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate quota key {op.key:.60}")
        named.add(op.key)
        value = None if op.remove else checked_value(entity, op.key, op.value)
        if op.key in keys:
            changes[op.key] = value
    return changes


def _changed(settings: dict[str, str], changes: Changes) -> Mapping[str, str]:
    """Return the settings of an entity after `changes`; settings that are not in `changes` keep their values."""
    for key, value in changes.items():
        if value is None:
            settings.pop(key, None)
        else:
            settings[key] = value
    return settings


def _fail(result: Result, error: KafkaError) -> None:
    result.error_code, result.error_message = error.code, error.message
