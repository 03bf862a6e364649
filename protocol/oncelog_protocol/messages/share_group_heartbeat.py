"""ShareGroupHeartbeat (76): a member of a share group joins, stays in the group, and gets its assignment (KIP-932)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, message, nested, string, struct, uuid


@message(api_key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest(Request["ShareGroupHeartbeatResponse"]):
    """Join, stay in or leave the group, as the member epoch says: 0 joins, the epoch of the last response stays, -1
    leaves. None means that a field has not changed since the last heartbeat. Version 0 was an early-access version of
    Kafka 4.0, which no broker serves any more.
    """

    group_id: str = string()
    member_id: str = string()  # member id, which the client generates and keeps during the entire life of the member
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(of=string(), nullable="0+", default=None)


@message(api_key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    """The member's epoch, and its assignment if the assignment has changed or was requested.

    Errors: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED, GROUP_ID_NOT_FOUND,
    INVALID_REQUEST.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32(default=0)
    heartbeat_interval_ms: int = int32(default=0)
    assignment: Assignment | None = nested(nullable="0+", default=None)  # None: unchanged

    @struct
    class Assignment:
        topic_partitions: list[TopicPartitions] = array()

        @struct
        class TopicPartitions:
            topic_id: bytes = uuid()
            partitions: list[int] = array(of=int32())
