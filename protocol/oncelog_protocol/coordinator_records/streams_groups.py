"""The records of `__consumer_offsets` that streams groups write (KIP-1071).

The key's version is the type of the record. Records of groups have the types 17 (group epoch), 20 (assignment epoch)
and 23 (topology). Records of members have the types 19 (their own metadata), 21 (target assignment) and 22 (current
assignment). All values have version 0. A null value is a tombstone.
"""

from __future__ import annotations

from typing import Final

from oncelog_protocol.schema import array, int8, int16, int32, int64, message, nested, string, struct, uint16

GROUP_EPOCH_KEY: Final = 17
MEMBER_KEY: Final = 19
ASSIGNMENT_EPOCH_KEY: Final = 20
TARGET_KEY: Final = 21
CURRENT_KEY: Final = 22
TOPOLOGY_KEY: Final = 23
VALUE_VERSION: Final = 0


@message(versions="17", flexible=None)
class StreamsGroupMetadataKey:
    """The key of a group's epoch."""

    group_id: str = string("17")


@message(versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    """The epoch of a group, a hash of the topics of its topology, the epoch of the topology whose topics were found
    complete (-1: none), and the settings of the last assignment (Kafka 4.2)."""

    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = array(nullable="0+", tag=1, default=None)

    @struct
    class LastAssignmentConfig:
        key: str = string()
        value: str = string()


@message(versions="19", flexible=None)
class StreamsGroupMemberMetadataKey:
    """The key of a member's own metadata."""

    group_id: str = string("19")
    member_id: str = string("19")


@message(versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    """A member's own metadata, as the member sent them."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = nested(nullable="0+", default=None)
    client_tags: list[KeyValue] = array()

    @struct
    class Endpoint:
        host: str = string()
        port: int = uint16()

    @struct
    class KeyValue:
        key: str = string()
        value: str = string()


@message(versions="20", flexible=None)
class StreamsGroupTargetAssignmentMetadataKey:
    """The key of the epoch of a group's target assignment."""

    group_id: str = string("20")


@message(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    """The group epoch for which the target assignment was computed, and the time of the computation (wall time in ms, 0
    means unknown; Kafka 4.3).
    """

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, default=0)


@message(versions="21", flexible=None)
class StreamsGroupTargetAssignmentMemberKey:
    """The key of a member's target assignment."""

    group_id: str = string("21")
    member_id: str = string("21")


@message(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    """The target assignment of a member."""

    active_tasks: list[TaskIds] = array()
    standby_tasks: list[TaskIds] = array()
    warmup_tasks: list[TaskIds] = array()

    @struct
    class TaskIds:
        subtopology_id: str = string()
        partitions: list[int] = array(of=int32())


@message(versions="22", flexible=None)
class StreamsGroupCurrentMemberAssignmentKey:
    """The key of a member's current assignment."""

    group_id: str = string("22")
    member_id: str = string("22")


@message(versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    """A member's current assignment, and the tasks that the member must give up but may still be running."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()  # member state 1: stable, 2: has tasks to give up, 3: waits for tasks of other members
    active_tasks: list[TaskIds] = array()
    standby_tasks: list[TaskIds] = array()
    warmup_tasks: list[TaskIds] = array()
    active_tasks_pending_revocation: list[TaskIds] = array()
    standby_tasks_pending_revocation: list[TaskIds] = array()
    warmup_tasks_pending_revocation: list[TaskIds] = array()

    @struct
    class TaskIds:
        """Tasks of one subtopology. `assignment_epochs` has the epoch in which each active task was assigned to the
        member (KIP-1251); it is None for other tasks.
        """

        subtopology_id: str = string()
        partitions: list[int] = array(of=int32())
        assignment_epochs: list[int] | None = array(of=int32(), nullable="0+", tag=0, default=None)


@message(versions="23", flexible=None)
class StreamsGroupTopologyKey:
    """The key of a group's topology."""

    group_id: str = string("23")


@message(versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    """The topology of a group, as the group's first member sent the topology."""

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
            source_topics: list[int] = array(of=int16())
            source_topic_regex: list[int] = array(of=int16())
            repartition_source_topics: list[int] = array(of=int16())


@struct
class TopicInfo:
    """An internal topic of a streams application, such as a changelog or repartition topic. `partitions` 0 means that
    the broker decides; `replication_factor` 0 means the broker's default.
    """

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[TopicConfig] = array()


@struct
class TopicConfig:
    key: str = string()
    value: str = string()
