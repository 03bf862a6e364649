"""AlterClientQuotas (49): sets and removes quotas of users and client ids (KIP-546)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, boolean, float64, int16, int32, message, string, struct


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"]):
    """Set or remove the named quotas of each entity.

    v1: flexible.
    """

    entries: list[EntryData] = array()
    validate_only: bool = boolean()

    @struct
    class EntryData:
        entity: list[EntityData] = array()
        ops: list[OpData] = array()

        @struct
        class EntityData:
            entity_type: str = string()
            entity_name: str | None = string(nullable="0+")  # name of the entity; null means the default entity

        @struct
        class OpData:
            key: str = string()
            value: float = float64()
            remove: bool = boolean()


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    """The response has one result per entity, in the order of the request.

    Errors: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, REQUEST_TIMED_OUT.
    """

    throttle_time_ms: int = int32(default=0)
    entries: list[EntryData] = array()

    @struct
    class EntryData:
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        entity: list[EntityData] = array()

        @struct
        class EntityData:
            entity_type: str = string()
            entity_name: str | None = string(nullable="0+")
