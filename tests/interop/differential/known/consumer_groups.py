"""Known differences in consumer groups of the new protocol (KIP-848)."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.comparison import ABSENT
from tests.interop.differential.register import NOWHERE, Known
from tests.interop.differential.scenarios.consumer_walk import MEMBERS

ERROR: Final = "error_code"
INTERVAL: Final = "heartbeat_interval_ms"

KNOWN: Final = (
    Known("early-heartbeats", "consumer_groups.*", INTERVAL, 5000, 1000, seen_in="consumer_groups.two_members"),
    Known("early-heartbeats", "walk.consumers.*", INTERVAL, 5000, 1000, seen_in=NOWHERE),
    Known("refused-member-id", "consumer_groups.kinds_of_groups", "member_id", "", "m", "JoinGroup"),
    *(
        Known("refused-member-id", "walk.consumers.*", "member_id", "", each, "JoinGroup", seen_in=NOWHERE)
        for each in MEMBERS
    ),
    Known("topics-of-nobody", "consumer_groups.no_topics", "n.target_assignment.*", ABSENT, label="* again"),
    Known("preferred-assignor", "consumer_groups.assignors", "member_epoch", 3, 4, label="*uniform"),
    Known("preferred-assignor", "consumer_groups.assignors", "group_epoch", 3, 4, label="*uniform"),
    Known("preferred-assignor", "consumer_groups.assignors", "assignment_epoch", 3, 4, label="*uniform"),
    Known("preferred-assignor", "consumer_groups.assignors", "group_state", "Stable", "Reconciling", label="*uniform"),
    Known("epoch-of-nobody", "consumer_groups.one_member", "assignment_epoch", 8, 9, label="empty"),
    Known("epoch-of-nobody", "consumer_groups.static_members", "assignment_epoch", 2, 3, label="gone"),
    Known("unreadable-assignment", "consumer_groups.unreadable_members", ERROR, -1, 69, label="* other bytes"),
    Known("unreadable-assignment", "consumer_groups.kinds_of_groups", ERROR, -1, 69, label="new member, classic group"),
    Known("epoch-without-member", "consumer_groups.commits", ERROR, -1, 25, label="member None epoch 1"),
    Known("topic-without-partitions", "consumer_groups.kinds_of_groups", "topics.~a", ABSENT, label="no partitions"),
    Known("named-twice", "consumer_groups.kinds_of_groups", "groups", label="twice"),
)
