"""StreamsGroupHeartbeat (88): a member of a streams group joins, stays in the group, and gets its tasks (KIP-1071).

A task is a subtopology and a partition number: the member reads that partition of all source topics of the subtopology.
"""

from __future__ import annotations

from enum import IntEnum

from oncelog_protocol.schema import (
    Request,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    string,
    struct,
    uint16,
)


class StatusCode(IntEnum):
    """A status of the group that its members must know."""

    STALE_TOPOLOGY = 0
    """The topology of the member is older than the topology of the group."""
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    """The broker is creating topics; the detail text has the errors of topics that could not be created."""
    SHUTDOWN_APPLICATION = 4
    """A member has requested that all members stop."""
    ASSIGNMENT_DELAYED = 5


@struct
class KeyValue:
    key: str = string()
    value: str = string()


@struct
class TopicInfo:
    """An internal topic, which the application needs and the broker creates."""

    name: str = string()
    partitions: int = int32()  # number of partitions; 0 means that the broker decides, always 0 for changelog topics
    replication_factor: int = int16()  # replication factor; 0 means the broker's default
    topic_configs: list[KeyValue] = array()


@struct
class Endpoint:
    """The address at which a member serves interactive queries."""

    host: str = string()
    port: int = uint16()


@struct
class TaskIds:
    """Tasks of one subtopology, given by the partition numbers that the tasks read."""

    subtopology_id: str = string()
    partitions: list[int] = array(of=int32())


@struct
class TaskOffset:
    """An offset sum of one task: either the sum of the member's offsets in the task's changelog topics, or the sum of
    the end offsets of these topics.
    """

    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


@message(api_key=88, versions="0", flexible="0+")
class StreamsGroupHeartbeatRequest(Request["StreamsGroupHeartbeatResponse"]):
    """Join, stay in or leave the group, as the member epoch says: 0 joins, the epoch of the last response stays, -1
    leaves. None means that a field has not changed since the last heartbeat.
    """

    group_id: str = string()
    member_id: str = string()  # member id, which the client generates and keeps during the entire life of the member
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()  # epoch of the endpoint information that the client already has
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)  # -1 means that the timeout is unchanged
    # the topology of the application, which only joining members send
    topology: Topology | None = nested(nullable="0+", default=None)
    active_tasks: list[TaskIds] | None = array(nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(nullable="0+", default=None)
    # id of the process: members of one process share a state directory
    process_id: str | None = string(nullable="0+", default=None)
    user_endpoint: Endpoint | None = nested(nullable="0+", default=None)
    client_tags: list[KeyValue] | None = array(nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = array(nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = array(nullable="0+", default=None)
    shutdown_application: bool = boolean(default=False)

    @struct
    class Topology:
        epoch: int = int32()
        subtopologies: list[Subtopology] = array()

        @struct
        class Subtopology:
            subtopology_id: str = string()
            source_topics: list[str] = array(of=string())
            source_topic_regex: list[str] = array(of=string())
            state_changelog_topics: list[TopicInfo] = array()
            repartition_sink_topics: list[str] = array(of=string())
            repartition_source_topics: list[TopicInfo] = array()
            copartition_groups: list[CopartitionGroup] = array()

            @struct
            class CopartitionGroup:
                """Topics that must have the same number of partitions; each topic is given by its index in a topic list
                of the subtopology.
                """

                source_topics: list[int] = array(of=int16())
                source_topic_regex: list[int] = array(of=int16())
                repartition_source_topics: list[int] = array(of=int16())


@message(api_key=88, versions="0", flexible="0+")
class StreamsGroupHeartbeatResponse:
    """The epoch of the member, the status of its group, and the tasks of the member if they have changed.

    Errors: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, NOT_COORDINATOR,
    COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH,
    UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED, GROUP_ID_NOT_FOUND, STREAMS_INVALID_TOPOLOGY,
    STREAMS_INVALID_TOPOLOGY_EPOCH, STREAMS_TOPOLOGY_FENCED.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str = string(default="")
    member_epoch: int = int32(default=0)
    heartbeat_interval_ms: int = int32(default=0)
    acceptable_recovery_lag: int = int32(default=0)
    task_offset_interval_ms: int = int32(default=0)
    status: list[Status] | None = array(nullable="0+")
    active_tasks: list[TaskIds] | None = array(nullable="0+", default=None)  # None: unchanged
    standby_tasks: list[TaskIds] | None = array(nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(nullable="0+", default=None)
    endpoint_information_epoch: int = int32(default=0)
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(nullable="0+", default=None)

    @struct
    class Status:
        status_code: int = int8()  # a StatusCode
        status_detail: str = string()

    @struct
    class EndpointToPartitions:
        """The source partitions of one member's tasks. Members of one client have the same endpoint."""

        user_endpoint: Endpoint = nested()
        active_partitions: list[TopicPartition] = array()
        standby_partitions: list[TopicPartition] = array()

        @struct
        class TopicPartition:
            topic: str = string()
            partitions: list[int] = array(of=int32())
