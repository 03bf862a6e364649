"""ConsumerGroupHeartbeat (68): a member of a consumer group joins, stays in the group, and gets its assignment
(KIP-848).
"""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, message, nested, string, struct, uuid


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"]):
    """Join, stay in or leave the group, as the member epoch says: 0 joins, the epoch of the last response stays, -1
    leaves, and -2 leaves temporarily (static members). None (for the timeout, -1) means that a field has not changed
    since the last heartbeat.

    v1: subscribed_topic_regex; the client generates the member id.
    """

    group_id: str = string()
    member_id: str = string()  # member id, which stays the same during the entire life of the member
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)  # time that the member may take to revoke partitions
    subscribed_topic_names: list[str] | None = array(of=string(), nullable="0+", default=None)
    # a regular expression (RE2) for the full topic name; "" means no expression
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    # the partitions that the member owns
    topic_partitions: list[TopicPartitions] | None = array(nullable="0+", default=None)

    @struct
    class TopicPartitions:
        topic_id: bytes = uuid()
        partitions: list[int] = array(of=int32())


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    """The member's epoch, and its assignment if the assignment has changed or was requested.

    Errors: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED,
    TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID,
    UNSUPPORTED_ASSIGNOR, UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED, GROUP_ID_NOT_FOUND,
    INVALID_REGULAR_EXPRESSION (v1).
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
