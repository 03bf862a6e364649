"""SyncGroup (14): distributes the assignments of a generation."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, bytes_, int16, int32, message, string, struct


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupRequest(Request["SyncGroupResponse"]):
    """The leader sends the assignments of all members, and the other members send none; each member waits for its own
    assignment.

    v3: group_instance_id: static members, which keep their identity across restarts (KIP-345).
    v4: flexible.
    v5: protocol_type and protocol_name, which the coordinator checks (KIP-559, T14).
    """

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    # the assignments of all members; only the leader sends them
    assignments: list[SyncGroupRequestAssignment] = array()

    @struct
    class SyncGroupRequestAssignment:
        member_id: str = string()
        assignment: bytes = bytes_()  # a ConsumerProtocolAssignment if the type is "consumer"


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """The assignment of this member. The assignment must be complete, because clients crash on a truncated one (T14).

    v1: throttle_time_ms.
    v2: on a quota violation, the broker responds before it throttles the client.
    v3: FENCED_INSTANCE_ID is possible (KIP-345).
    v4: flexible.
    v5: protocol_type and protocol_name (KIP-559).

    Errors: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, UNKNOWN_MEMBER_ID,
    ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS (join again), INCONSISTENT_GROUP_PROTOCOL, FENCED_INSTANCE_ID,
    GROUP_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignment: bytes = bytes_()
