"""Known differences in groups and their offsets."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.register import Known
from tests.interop.differential.side import NO_ANSWER

ERROR: Final = "error_code"

KNOWN: Final = (
    Known("pending-member-leaves", "group_membership.pending_member_leaves_others", ERROR, 27, 0, "Heartbeat"),
    Known("pending-with-instance", "group_membership.pending_members_with_an_instance", ERROR, -1, 25, "JoinGroup"),
    Known("pending-with-instance", "group_membership.pending_members_with_an_instance", ERROR, 0, 25, "LeaveGroup"),
    Known("protocol-twice", "group_membership.protocol_twice", "", NO_ANSWER),
    Known("unreadable-subscription", "group_membership.unreadable_subscription", "", NO_ANSWER),
    Known("tie-of-votes", "group_rebalance.votes", "protocol_name", "rr", "range", label="tie"),
    Known("empty-groups", "group_membership.pending_members", ERROR, 0, 69, label="the pending one left"),
    Known("empty-groups", "offsets.last_offset_deleted", ERROR, 0, 69, "DescribeGroups"),
    Known("named-twice", "offsets.many_groups", "groups", label="twice"),
    Known("named-twice", "offsets.groups_described", "groups", label="twice"),
)
