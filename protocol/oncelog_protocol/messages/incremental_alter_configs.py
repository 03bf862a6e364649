"""IncrementalAlterConfigs (44): changes single keys of a configuration (KIP-339)."""

from __future__ import annotations

from enum import IntEnum

from oncelog_protocol.schema import Request, array, boolean, int8, int16, int32, message, string, struct


class ConfigOperation(IntEnum):
    """The operation on a key. APPEND and SUBTRACT are for lists; adding items that are present, or removing items that
    are absent, is no error.
    """

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"]):
    """Apply operations to single keys; other keys stay unchanged. Either all operations on a resource are applied, or
    none.

    v1: flexible.
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
            config_operation: int = int8()  # a ConfigOperation
            # the value of the operation: None with DELETE, comma-separated items with APPEND and SUBTRACT
            value: str | None = string(nullable="0+")


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """The response has one result per resource.

    v1: flexible.

    Errors of a resource: INVALID_CONFIG, INVALID_REQUEST (a key named twice, a null value, an operation that does not
    suit the key), UNKNOWN_TOPIC_OR_PARTITION, POLICY_VIOLATION, NOT_CONTROLLER, TOPIC_AUTHORIZATION_FAILED,
    CLUSTER_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32(default=0)
    responses: list[AlterConfigsResourceResponse] = array()

    @struct
    class AlterConfigsResourceResponse:
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        resource_type: int = int8()
        resource_name: str = string()
