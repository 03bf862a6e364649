"""LeaveGroup (13): members leave a classic group, so that its next rebalance does not wait for them."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, message, string, struct


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest(Request["LeaveGroupResponse"]):
    """Leave the group, or remove members from it. A member is given by its member id; a static member may also be given
    by its instance id.

    v3: many members in one request (KIP-345).
    v4: flexible.
    v5: reason (KIP-800).
    """

    group_id: str = string()
    member_id: str = string("0-2", default="")
    members: list[MemberIdentity] = array("3+", default_factory=list)

    @struct
    class MemberIdentity:
        member_id: str = string("3+")  # member id; "" means the member with this instance id
        group_instance_id: str | None = string("3+", nullable="3+", default=None)
        reason: str | None = string("5+", nullable="5+", default=None)


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """From v3 on, the response has one result per member.

    v1: throttle_time_ms.
    v2: on a quota violation, the broker responds before it throttles the client.
    v3: members (KIP-345).
    v4: flexible.

    Errors: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID, GROUP_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16()
    members: list[MemberResponse] = array("3+", default_factory=list)

    @struct
    class MemberResponse:
        member_id: str = string("3+")
        group_instance_id: str | None = string("3+", nullable="3+", default=None)
        error_code: int = int16("3+")
