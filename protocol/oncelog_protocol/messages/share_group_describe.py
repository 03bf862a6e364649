"""ShareGroupDescribe (77): describes state and members of share groups (KIP-932)."""

from __future__ import annotations

from oncelog_protocol.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED
from oncelog_protocol.schema import Request, array, boolean, int16, int32, message, nested, string, struct, uuid


@message(api_key=77, versions="1", flexible="0+")
class ShareGroupDescribeRequest(Request["ShareGroupDescribeResponse"]):
    """Describe share groups by their ids."""

    group_ids: list[str] = array(of=string())
    include_authorized_operations: bool = boolean()


@message(api_key=77, versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    """The response has one entry per group.

    Errors: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, INVALID_GROUP_ID, GROUP_ID_NOT_FOUND (also for a group of another type).
    """

    throttle_time_ms: int = int32(default=0)
    groups: list[DescribedGroup] = array()

    @struct
    class DescribedGroup:
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        group_id: str = string()
        group_state: str = string()  # Empty, Stable or Dead; "" on error
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        assignor_name: str = string()
        members: list[Member] = array()
        authorized_operations: int = int32(default=AUTHORIZED_OPERATIONS_OMITTED)

        @struct
        class Member:
            member_id: str = string()
            rack_id: str | None = string(nullable="0+", default=None)
            member_epoch: int = int32()
            client_id: str = string()
            client_host: str = string()
            subscribed_topic_names: list[str] = array(of=string())
            assignment: Assignment = nested()

            @struct
            class Assignment:
                topic_partitions: list[TopicPartitions] = array()

                @struct
                class TopicPartitions:
                    topic_id: bytes = uuid()
                    topic_name: str = string()
                    partitions: list[int] = array(of=int32())
