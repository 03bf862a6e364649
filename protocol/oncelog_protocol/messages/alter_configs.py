"""AlterConfigs (33): replaces the entire configuration of topics or brokers."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, boolean, int8, int16, int32, message, string, struct


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Request["AlterConfigsResponse"]):
    """Set the given keys and *reset every other key* of the resource; IncrementalAlterConfigs changes only the given
    keys (KIP-339).

    v2: flexible.
    """

    resources: list[AlterConfigsResource] = array()
    validate_only: bool = boolean()  # True means that the request is only validated

    @struct
    class AlterConfigsResource:
        resource_type: int = int8()  # type of the resource: 2 topic, 4 broker, 8 broker loggers, 32 group
        resource_name: str = string()
        configs: list[AlterableConfig] = array()

        @struct
        class AlterableConfig:
            name: str = string()
            value: str | None = string(nullable="0+")


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """The response has one result per resource.

    v1: on a quota violation, the broker responds before it throttles the client.
    v2: flexible.

    Errors of a resource: INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, POLICY_VIOLATION, NOT_CONTROLLER,
    TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32(default=0)
    responses: list[AlterConfigsResourceResponse] = array()

    @struct
    class AlterConfigsResourceResponse:
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        resource_type: int = int8()
        resource_name: str = string()
