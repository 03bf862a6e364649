"""DescribeClientQuotas (48): returns the configured quotas of users and client ids (KIP-546)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, boolean, float64, int8, int16, int32, message, string, struct


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"]):
    """Describe the quotas of the entities that match all filter components.

    v1: flexible.
    """

    components: list[ComponentData] = array()
    strict: bool = boolean()  # whether to exclude entities that have more parts (user, client id, ip)

    @struct
    class ComponentData:
        entity_type: str = string()
        match_type: int = int8()  # what this component matches: 0 the name in `match`, 1 the default entity, 2 any name
        match: str | None = string(nullable="0+")


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """The quotas of each entity.

    Errors: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, UNSUPPORTED_VERSION (an unknown entity type).
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    entries: list[EntryData] | None = array(nullable="0+")

    @struct
    class EntryData:
        entity: list[EntityData] = array()
        values: list[ValueData] = array()

        @struct
        class EntityData:
            entity_type: str = string()
            entity_name: str | None = string(nullable="0+")  # name of the entity; null means the default entity

        @struct
        class ValueData:
            key: str = string()
            value: float = float64()
