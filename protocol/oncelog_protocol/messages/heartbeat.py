"""Heartbeat (12): a member of a classic group reports that it is alive."""

from __future__ import annotations

from oncelog_protocol.schema import Request, int16, int32, message, string


@message(api_key=12, versions="0-4", flexible="4+")
class HeartbeatRequest(Request["HeartbeatResponse"]):
    """Keep the session of a member alive.

    v3: group_instance_id: static members, which keep their identity across restarts (KIP-345).
    v4: flexible.
    """

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@message(api_key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """The response says whether the member's generation is still current.

    v1: throttle_time_ms.
    v2: on a quota violation, the broker responds before it throttles the client.
    v3: FENCED_INSTANCE_ID is possible (KIP-345).
    v4: flexible.

    Errors: REBALANCE_IN_PROGRESS (join again), ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
    COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, GROUP_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16()
