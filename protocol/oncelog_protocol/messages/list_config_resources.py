"""ListConfigResources (74): the names of resources that have a configuration."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int8, int16, int32, message, string, struct


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"]):
    """List resources of some types.

    v0: was ListClientMetricsResources (KIP-714): client metrics only.
    v1: resource_types (KIP-1142).
    """

    # ResourceType (describe_configs.py); empty: all supported types
    resource_types: list[int] = array("1+", of=int8(), default_factory=list)


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """Names and types.

    v1: resource_type (KIP-1142).

    Errors: UNSUPPORTED_VERSION (a type that cannot be listed), CLUSTER_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    config_resources: list[ConfigResource] = array()

    @struct
    class ConfigResource:
        resource_name: str = string()
        resource_type: int = int8("1+", default=16)  # v0 supports only 16, client metrics
