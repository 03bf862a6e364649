"""DescribeClientQuotas (48), v0-1: the configured quotas of the entities that a filter matches (KIP-546, KIP-612).

Behaviour: each component of the filter selects one entity type and matches a given name, the default, or any value; an
entity must match all components. A strict filter excludes entities that have a type for which the filter has no
component. A filter on addresses matches only entities that have an address; two spellings of one address are
equal.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.metadata.model.quotas import Quotas
from oncelog_broker.runtime.addresses import plain_address
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.access.quota_fields import CLIENT_ID, IP, TYPES, USER, parts_of
from oncelog_broker.server.access.services import AccessContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from oncelog_protocol.quotas import DEFAULT, Name, QuotaEntity

Entry = DescribeClientQuotasResponse.EntryData
Part = Entry.EntityData
Value = Entry.ValueData
Component = DescribeClientQuotasRequest.ComponentData

EXACT: Final = 0
DEFAULT_ENTITY: Final = 1
SPECIFIED: Final = 2
"""Values of `match_type`: the component matches a given name, the default entity, or any name and the default."""
ENTITIES_PER_STEP: Final = 200


class _Any:
    """The condition of a filter component that any name of its entity type fulfils, and also the default of this
    type."""


ANY: Final = _Any()
Filter = dict[str, Name | _Any]


def handle(request: DescribeClientQuotasRequest, context: AccessContext) -> Answer[DescribeClientQuotasResponse]:
    try:
        context.require(rules.DESCRIBE_QUOTAS)
        wanted = _filter(request)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return context.in_slices(_matching(context.services.image.quotas, wanted, is_strict=request.strict))


def _filter(request: DescribeClientQuotasRequest) -> Filter:
    """Return the conditions on an entity, by entity type. Raises KafkaError INVALID_REQUEST or UNSUPPORTED_VERSION."""
    wanted: Filter = {}
    for component in request.components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind not in TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind:.40}")
        if kind in wanted:
            twice = f"Entity type {kind} cannot appear more than once in the filter."
            raise KafkaError(ErrorCode.INVALID_REQUEST, twice)
        wanted[kind] = _wanted(component)
    if IP in wanted and len(wanted) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination, IP filter component should not be used with user or "
            "clientId filter component.",
        )
    return wanted


def _wanted(component: Component) -> Name | _Any:
    if component.match_type == EXACT:
        if component.match is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match to null.")
        if component.entity_type == IP:
            return plain_address(component.match) or component.match
        return component.match
    if component.match is not None and component.match_type in (DEFAULT_ENTITY, SPECIFIED):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Only an exact match has a name.")
    if component.match_type == DEFAULT_ENTITY:
        return DEFAULT
    if component.match_type == SPECIFIED:
        return ANY
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")


def _matching(quotas: Quotas, wanted: Filter, *, is_strict: bool) -> Steps[DescribeClientQuotasResponse]:
    entries = []
    for number, (entity, values) in enumerate(quotas.items(), 1):
        if _matches(entity, wanted, is_strict=is_strict):
            entries.append(
                Entry(
                    entity=[Part(entity_type=kind, entity_name=name) for kind, name in parts_of(entity)],
                    values=[Value(key=key, value=value) for key, value in sorted(values.items())],
                )
            )
        if number % ENTITIES_PER_STEP == 0:
            yield None
    return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, entries=entries)


def _matches(entity: QuotaEntity, wanted: Filter, *, is_strict: bool) -> bool:
    parts = zip((USER, CLIENT_ID, IP), entity, strict=True)
    return all(
        (name is not None and wanted[kind] in (ANY, name)) if kind in wanted else (name is None or not is_strict)
        for kind, name in parts
    )
