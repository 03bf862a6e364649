"""CreateTopics (19): creates topics. The controller serves this request."""

from __future__ import annotations

from oncelog_protocol.schema import (
    ZERO_UUID,
    Request,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
    uuid,
)


@message(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest(Request["CreateTopicsResponse"]):
    """Create topics, or only validate the request.

    v4: num_partitions and replication_factor may be -1 for the broker's defaults (KIP-464).
    v5: flexible.
    v6: the client understands THROTTLING_QUOTA_EXCEEDED (KIP-599).
    """

    topics: list[CreatableTopic] = array()
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+", default=False)  # True means that the request is only validated

    @struct
    class CreatableTopic:
        name: str = string()
        num_partitions: int = int32()  # -1 means the broker's default, or the replicas per partition in the assignments
        replication_factor: int = int16()  # -1 means the broker's default, or the number of assignments
        # empty, or one entry per partition; the number of partitions and the replication factor are then -1
        assignments: list[CreatableReplicaAssignment] = array()
        configs: list[CreatableTopicConfig] = array()

        @struct
        class CreatableReplicaAssignment:
            partition_index: int = int32()
            broker_ids: list[int] = array(of=int32())  # the first broker is the preferred leader

        @struct
        class CreatableTopicConfig:
            name: str = string()
            value: str | None = string(nullable="0+")


@message(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    """The response has one result per topic.

    v2: throttle_time_ms.
    v3: on a quota violation, the broker responds before it throttles the client.
    v5: flexible; partitions, replication factor and configuration of the new topic (KIP-525).
    v6: THROTTLING_QUOTA_EXCEEDED is possible (KIP-599).
    v7: topic_id (KIP-516).

    Errors of a topic: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
    INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST (a topic is named twice), POLICY_VIOLATION,
    NOT_CONTROLLER, REQUEST_TIMED_OUT, TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED,
    THROTTLING_QUOTA_EXCEEDED.
    """

    throttle_time_ms: int = int32("2+", default=0)
    topics: list[CreatableTopicResult] = array()

    @struct
    class CreatableTopicResult:
        name: str = string()
        topic_id: bytes = uuid("7+", default=ZERO_UUID)
        error_code: int = int16()
        error_message: str | None = string("1+", nullable="0+", default=None)
        # TOPIC_AUTHORIZATION_FAILED if the configuration is omitted
        topic_config_error_code: int = int16("5+", tag=0, default=0)
        num_partitions: int = int32("5+", default=-1)
        replication_factor: int = int16("5+", default=-1)
        # None if the caller may not see the configuration
        configs: list[CreatableTopicConfigs] | None = array("5+", nullable="5+", default_factory=list)

        @struct
        class CreatableTopicConfigs:
            name: str = string("5+")
            value: str | None = string("5+", nullable="5+")  # value of the key; None if is_sensitive
            read_only: bool = boolean("5+")
            # the level at which the key is set, a ConfigSource of DescribeConfigs
            config_source: int = int8("5+", default=-1)
            is_sensitive: bool = boolean("5+")
