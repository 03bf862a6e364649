"""DescribeGroups (15): describes state and members of classic groups."""

from __future__ import annotations

from oncelog_protocol.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED
from oncelog_protocol.schema import Request, array, boolean, bytes_, int16, int32, message, string, struct


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest(Request["DescribeGroupsResponse"]):
    """Describe groups by their ids.

    v3: include_authorized_operations (KIP-430).
    v5: flexible.
    """

    groups: list[str] = array(of=string())
    include_authorized_operations: bool = boolean("3+", default=False)


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """The response has one entry per group.

    v1: throttle_time_ms.
    v2: on a quota violation, the broker responds before it throttles the client.
    v3: authorized_operations (KIP-430).
    v4: group_instance_id (KIP-345).
    v5: flexible.
    v6: error_message; for an unknown group, the error GROUP_ID_NOT_FOUND replaces the state "Dead" (KIP-1043).

    Errors: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND,
    GROUP_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32("1+", default=0)
    groups: list[DescribedGroup] = array()

    @struct
    class DescribedGroup:
        error_code: int = int16()
        error_message: str | None = string("6+", nullable="6+", default=None)
        group_id: str = string()
        group_state: str = string()  # PreparingRebalance, CompletingRebalance, Stable, Empty, Dead; "" on error
        protocol_type: str = string()
        protocol_data: str = string()  # the chosen assignor while the group is Stable, otherwise ""
        members: list[DescribedGroupMember] = array()
        authorized_operations: int = int32("3+", default=AUTHORIZED_OPERATIONS_OMITTED)

        @struct
        class DescribedGroupMember:
            member_id: str = string()
            group_instance_id: str | None = string("4+", nullable="4+", default=None)
            client_id: str = string()
            client_host: str = string()
            member_metadata: bytes = bytes_()  # the member's assignment, empty unless the group is Stable
            member_assignment: bytes = bytes_()  # the member's metadata, empty unless the group is Stable
