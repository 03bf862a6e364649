"""StreamsGroupDescribe (89): describes state, topology and members of streams groups (KIP-1071)."""

from __future__ import annotations

from oncelog_protocol.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED
from oncelog_protocol.messages.streams_group_heartbeat import Endpoint, KeyValue, TaskIds, TaskOffset, TopicInfo
from oncelog_protocol.schema import Request, array, boolean, int16, int32, message, nested, string, struct


@message(api_key=89, versions="0", flexible="0+")
class StreamsGroupDescribeRequest(Request["StreamsGroupDescribeResponse"]):
    """Describe streams groups by their ids."""

    group_ids: list[str] = array(of=string())
    include_authorized_operations: bool = boolean()


@message(api_key=89, versions="0", flexible="0+")
class StreamsGroupDescribeResponse:
    """The response has one entry per group.

    Errors: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST, INVALID_GROUP_ID, GROUP_ID_NOT_FOUND (also for a group of another
    type).
    """

    throttle_time_ms: int = int32(default=0)
    groups: list[DescribedGroup] = array()

    @struct
    class DescribedGroup:
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        group_id: str = string()
        group_state: str = string()  # Empty, NotReady, Assigning, Reconciling, Stable, Dead; "" on error
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        topology: Topology | None = nested(nullable="0+", default=None)
        members: list[Member] = array()
        authorized_operations: int = int32(default=AUTHORIZED_OPERATIONS_OMITTED)

        @struct
        class Topology:
            epoch: int = int32()
            subtopologies: list[Subtopology] | None = array(nullable="0+", default=None)

            @struct
            class Subtopology:
                subtopology_id: str = string()
                source_topics: list[str] = array(of=string())
                repartition_sink_topics: list[str] = array(of=string())
                state_changelog_topics: list[TopicInfo] = array()
                repartition_source_topics: list[TopicInfo] = array()

        @struct
        class Member:
            member_id: str = string()
            member_epoch: int = int32()
            instance_id: str | None = string(nullable="0+", default=None)
            rack_id: str | None = string(nullable="0+", default=None)
            client_id: str = string()
            client_host: str = string()
            topology_epoch: int = int32()
            process_id: str = string()
            user_endpoint: Endpoint | None = nested(nullable="0+", default=None)
            client_tags: list[KeyValue] = array()
            task_offsets: list[TaskOffset] = array()
            task_end_offsets: list[TaskOffset] = array()
            assignment: Assignment = nested()
            target_assignment: Assignment = nested()
            is_classic: bool = boolean()

            @struct
            class Assignment:
                active_tasks: list[TaskIds] = array()
                standby_tasks: list[TaskIds] = array()
                warmup_tasks: list[TaskIds] = array()
