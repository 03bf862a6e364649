"""JoinGroup (11): a member joins a classic consumer group, or its next generation."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, boolean, bytes_, int16, int32, message, string, struct


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupRequest(Request["JoinGroupResponse"]):
    """Join with the protocols that the member supports. The coordinator responds when the other members have joined,
    too.

    v1: rebalance_timeout_ms; in v0, session_timeout_ms is used for both timeouts.
    v4: a new member gets MEMBER_ID_REQUIRED and an id with which it must join again (KIP-394, T14).
    v5: group_instance_id: static members, which keep their identity across restarts (KIP-345).
    v6: flexible.
    v8: reason, for the log of the coordinator (KIP-800).

    v0 must be served, because old librdkafka checks exactly for v0 to find out whether the broker supports groups (T5).
    """

    group_id: str = string()
    session_timeout_ms: int = int32()  # a member that sends no heartbeat for this time is removed
    rebalance_timeout_ms: int = int32("1+", default=-1)  # time that the other members wait for this member to rejoin
    member_id: str = string()  # member id; "" means a new member
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()  # "consumer" for consumers, "connect" for Kafka Connect
    # the protocols (assignors) in order of preference, the preferred protocol first
    protocols: list[JoinGroupRequestProtocol] = array()
    reason: str | None = string("8+", nullable="8+", default=None)

    @struct
    class JoinGroupRequestProtocol:
        name: str = string()
        # Only the group's leader reads the metadata. In a group of the type "consumer", they are a
        # ConsumerProtocolSubscription.
        metadata: bytes = bytes_()


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """The new generation of the group, which the member has joined. Only the leader gets the list of members; it sends
    their assignments with SyncGroup.

    v2: throttle_time_ms.
    v3: on a quota violation, the broker responds before it throttles the client.
    v4: MEMBER_ID_REQUIRED is possible (KIP-394).
    v5: group_instance_id of the members; FENCED_INSTANCE_ID is possible (KIP-345).
    v6: flexible.
    v7: protocol_type; protocol_name is None if there is no generation (KIP-559).
    v9: skip_assignment: a static leader has rejoined, and the assignment is kept (KIP-814).

    Errors: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, INVALID_GROUP_ID,
    UNKNOWN_MEMBER_ID, MEMBER_ID_REQUIRED, INVALID_SESSION_TIMEOUT, INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS,
    GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID, GROUP_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32("2+", default=0)
    error_code: int = int16()
    generation_id: int = int32(default=-1)  # the new generation; -1 if there is an error
    protocol_type: str | None = string("7+", nullable="7+", default=None)
    protocol_name: str | None = string(nullable="7+")  # the chosen protocol (assignor), which all members support
    leader: str = string()  # the leader's member id
    skip_assignment: bool = boolean("9+", default=False)
    member_id: str = string()
    # the members of the generation; empty for all members but the leader
    members: list[JoinGroupResponseMember] = array()

    @struct
    class JoinGroupResponseMember:
        member_id: str = string()
        group_instance_id: str | None = string("5+", nullable="5+", default=None)
        metadata: bytes = bytes_()
