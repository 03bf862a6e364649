"""ConsumerGroupDescribe (69): describes state and members of groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import Final

from oncelog_protocol.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED
from oncelog_protocol.schema import Request, array, boolean, int8, int16, int32, message, nested, string, struct, uuid

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"]):
    """Describe groups by their ids. The request has the same fields in v0 and v1."""

    group_ids: list[str] = array(of=string())
    include_authorized_operations: bool = boolean()


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    """The response has one entry per group.

    v1: member_type (KIP-1099).

    Errors: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED,
    TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST, INVALID_GROUP_ID, GROUP_ID_NOT_FOUND (also for a group that is of
    another type).
    """

    throttle_time_ms: int = int32(default=0)
    groups: list[DescribedGroup] = array()

    @struct
    class DescribedGroup:
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        group_id: str = string()
        group_state: str = string()  # Empty, Assigning, Reconciling, Stable, Dead; "" on error
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        assignor_name: str = string()
        members: list[Member] = array()
        authorized_operations: int = int32(default=AUTHORIZED_OPERATIONS_OMITTED)

        @struct
        class Member:
            member_id: str = string()
            instance_id: str | None = string(nullable="0+", default=None)
            rack_id: str | None = string(nullable="0+", default=None)
            member_epoch: int = int32()
            client_id: str = string()
            client_host: str = string()
            subscribed_topic_names: list[str] = array(of=string())
            subscribed_topic_regex: str | None = string(nullable="0+", default=None)
            assignment: Assignment = nested()  # the current assignment, with the partitions to revoke
            target_assignment: Assignment = nested()  # the target assignment of the member
            # protocol of the member: CLASSIC_MEMBER, CONSUMER_MEMBER, or -1 if unknown
            member_type: int = int8("1+", default=-1)

            @struct
            class Assignment:
                topic_partitions: list[TopicPartitions] = array()

                @struct
                class TopicPartitions:
                    topic_id: bytes = uuid()
                    topic_name: str = string()
                    partitions: list[int] = array(of=int32())
