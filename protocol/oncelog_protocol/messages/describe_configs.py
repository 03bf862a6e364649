"""DescribeConfigs (32): describes the configuration of topics, brokers and groups."""

from __future__ import annotations

from enum import IntEnum

from oncelog_protocol.schema import Request, array, boolean, int8, int16, int32, message, string, struct


class ResourceType(IntEnum):
    """The type of the resource of a configuration. A broker is named by its id; "" stands for the defaults of all
    brokers.
    """

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a configuration value; the sources are listed by descending precedence."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigType(IntEnum):
    """The data type of a configuration value."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@message(api_key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    """Describe the configuration of resources: all keys, or only the named keys.

    v1: include_synonyms (KIP-226).
    v3: include_documentation (KIP-569).
    v4: flexible.
    """

    resources: list[DescribeConfigsResource] = array()
    include_synonyms: bool = boolean("1+", default=False)
    include_documentation: bool = boolean("3+", default=False)

    @struct
    class DescribeConfigsResource:
        resource_type: int = int8()  # a ResourceType
        resource_name: str = string()
        configuration_keys: list[str] | None = array(of=string(), nullable="0+", default=None)  # None: all


@message(api_key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    """The requested keys of each resource, including keys that are not set and have their default value (T23).

    v1: config_source and synonyms replace is_default (KIP-226).
    v2: on a quota violation, the broker responds before it throttles the client.
    v3: config_type and documentation (KIP-569).
    v4: flexible.

    Errors of a resource: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST (unknown type, another
    broker's id), TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32(default=0)
    results: list[DescribeConfigsResult] = array()

    @struct
    class DescribeConfigsResult:
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        resource_type: int = int8()
        resource_name: str = string()
        configs: list[DescribeConfigsResourceResult] = array()

        @struct
        class DescribeConfigsResourceResult:
            name: str = string()
            value: str | None = string(nullable="0+")  # value of the key; None if is_sensitive or not set
            read_only: bool = boolean()  # whether the key cannot be changed while the broker runs
            config_source: int = int8("1+", default=-1)  # a ConfigSource
            is_sensitive: bool = boolean()
            # all levels that set this key, by descending precedence
            synonyms: list[DescribeConfigsSynonym] = array("1+")
            config_type: int = int8("3+", default=0)  # a ConfigType
            documentation: str | None = string("3+", nullable="0+", default=None)

            @struct
            class DescribeConfigsSynonym:
                name: str = string("1+")
                value: str | None = string("1+", nullable="0+")
                source: int = int8("1+")
