"""ListConfigResources (74): lists the resources that have, or may have, a configuration (KIP-714, KIP-1142)."""

from __future__ import annotations

from typing import Final

from oncelog_protocol.schema import Request, array, int8, int16, int32, message, string, struct

CLIENT_METRICS: Final = 16
"""The `ResourceType` (of DescribeConfigs) for client metrics, which is the type of all resources in a v0 response."""


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"]):
    """List the resources of these types.

    v0: only client metrics are listed.
    v1: resource_types (KIP-1142).
    """

    # the types to list; an empty list means all types
    resource_types: list[int] = array("1+", of=int8(), default_factory=list)


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """The resources, each with its type.

    v1: resource_type.

    Errors: CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION for a type that the broker does not know.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    config_resources: list[ConfigResource] = array()

    @struct
    class ConfigResource:
        resource_name: str = string()
        resource_type: int = int8("1+", default=CLIENT_METRICS)
