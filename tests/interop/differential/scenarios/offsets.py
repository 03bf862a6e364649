"""Compares OffsetCommit, OffsetFetch and OffsetDelete, and groups that have only offsets."""

from __future__ import annotations

import time

from tests.interop.differential.calls import GROUP, coordinator, create
from tests.interop.differential.members import (
    all_offsets,
    commit_offset,
    delete_groups,
    delete_offsets,
    describe_groups,
    group_name,
    join,
    joined,
    leave,
    only_member,
    settle_groups,
    topic_of,
)
from tests.interop.differential.messages import Plain
from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey


@scenario
def versions(side: Side) -> None:
    """Commit offsets and read them back, in every version."""
    create(side, "a", 2)
    coordinator(side, "g", GROUP)
    all_offsets(side, "g", "unknown group")
    for version in range(2, 11):
        commit_offset(side, "g", offset=version, metadata=f"v{version}", leader_epoch=version % 2 - 1, version=version)
        all_offsets(side, "g", "all", version=version)
    describe_groups(side, "g", label="only offsets")
    named = [{"name": side.own("a"), "partition_indexes": [0, 1, 9]}]
    named.append({"name": side.own("none"), "partition_indexes": [0]})
    for version in range(1, 8):
        side.ask(ApiKey.OFFSET_FETCH, version, {"group_id": side.own("g"), "topics": named}, "named")
        side.ask(ApiKey.OFFSET_FETCH, version, {"group_id": side.own("g"), "topics": []}, "no topics")
    commit_offset(side, "kept", version=4, retention_ms=1, label="retention of 1 ms")
    time.sleep(0.05)  # wait longer than the retention time that the commit requests
    all_offsets(side, "kept", "retention of 1 ms")


@scenario
def many_groups(side: Side) -> None:
    """Send OffsetFetch for several groups."""
    create(side, "a")
    coordinator(side, "g", GROUP)
    commit_offset(side, "g")
    named = [{**topic_of(side, "a"), "partition_indexes": [0, 5]}]

    def of(group: str, topics: list[Plain] | None, **more: object) -> Plain:
        return {"group_id": group_name(side, group), "topics": topics, **more}

    for version in (8, 9, 10):
        for groups, label in (
            ([of("g", named), of("none", named)], "known, unknown"),
            ([of("g", None)], "all topics"),
            ([of("g", [{**topic_of(side, "none"), "partition_indexes": [0, 5]}, *named])], "an unknown topic"),
            ([], "none"),
            ([of("g", named), of("g", None)], "twice"),
        ):
            side.ask(ApiKey.OFFSET_FETCH, version, {"groups": groups}, label)
    for version in (9, 10):
        for epoch in (5, -1):
            groups = [of("g", named, member_id="m", member_epoch=epoch)]
            side.ask(ApiKey.OFFSET_FETCH, version, {"groups": groups}, f"member epoch {epoch}")
    no_id = [{"topic_id": bytes(16), "partition_indexes": [0]}]
    side.ask(ApiKey.OFFSET_FETCH, 10, {"groups": [of("g", no_id)]}, "the topic id zero")


@scenario
def partitions(side: Side) -> None:
    """Use partitions and topics that do not exist."""
    create(side, "a", 2)
    coordinator(side, "g", GROUP)
    for version in (2, 9, 10):
        commit_offset(side, "g", "unknown topic", topic="none", version=version)
        commit_offset(side, "g", "unknown partitions", partitions=(0, 1, 2, -1, 2**31 - 1), version=version)
    all_offsets(side, "g", "after unknown partitions")


@scenario
def odd_values(side: Side) -> None:
    """Commit offsets and metadata at their limits."""
    create(side, "a")
    coordinator(side, "g", GROUP)
    for offset in (-1, -5, 10**12):
        commit_offset(side, "g", f"offset {offset}", offset=offset)
        all_offsets(side, "g", f"offset {offset}")
    for metadata, label in (("x" * 4096, "4096"), ("x" * 4097, "4097"), (None, "null"), ("", "empty")):
        commit_offset(side, "g", f"metadata: {label}", metadata=metadata)
    all_offsets(side, "g")


@scenario
def unnamed_group(side: Side) -> None:
    """Use the group with the empty name, in which old clients may store offsets. All clients of a broker share this
    group.
    """
    create(side, "a")
    coordinator(side, "g", GROUP)
    side.get(ApiKey.DELETE_GROUPS, 2, {"groups_names": [""]})
    commit_offset(side, "", "one")
    named = [{"name": side.own("a"), "partition_indexes": [0]}]
    side.ask(ApiKey.OFFSET_FETCH, 7, {"group_id": "", "topics": named}, "that one")
    delete_offsets(side, "", "that one")
    commit_offset(side, "", "again")
    delete_groups(side, "", label="without a name")
    all_offsets(side, "", "none left")
    describe_groups(side, "", label="without a name")


@scenario
def without_members(side: Side) -> None:
    """Commit with member ids and generations in a group that has only offsets, and in a group that does not exist."""
    create(side, "a")
    coordinator(side, "g", GROUP)
    commit_offset(side, "g", "first")
    for group, label in (("g", "only offsets"), ("none", "unknown")):
        commit_offset(side, group, f"{label}: generation 0", generation=0)
        commit_offset(side, group, f"{label}: generation 3", generation=3)
        commit_offset(side, group, f"{label}: generation 3 and member", generation=3, member="m")
    commit_offset(side, "g", "only offsets: member", member="m")
    commit_offset(side, "g", "only offsets: instance", instance="i")
    commit_offset(side, "fresh", "unknown: member", member="m")


@scenario
def with_members(side: Side) -> None:
    """Commit as different clients in a group that has members, and after the members have left."""
    create(side, "a")
    coordinator(side, "g", GROUP)
    member = only_member(side, "g")
    mine, generation = member.id, member.generation
    for version in (2, 7, 9, 10):
        for at, who, label in (
            (generation, mine, "a member"),
            (generation + 1, mine, "next generation"),
            (generation, "nobody", "unknown member"),
            (-1, "", "neither"),
            (-1, mine, "no generation"),
            (generation, "", "no member"),
        ):
            commit_offset(side, "g", label, generation=at, member=who, version=version)
    leave(side, "g", (mine, None))
    commit_offset(side, "g", "neither, after they left")
    commit_offset(side, "g", "the old member, after it left", generation=generation, member=mine)


@scenario
def deleting(side: Side) -> None:
    """OffsetDelete."""
    create(side, "a", 2)
    coordinator(side, "g", GROUP)
    commit_offset(side, "g", partitions=(0, 1))
    delete_offsets(side, "g", "one")
    delete_offsets(side, "g", "gone, and unknown", partitions=(0, 9))
    delete_offsets(side, "g", "unknown topic", "none")
    delete_offsets(side, "none", "unknown group")
    side.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": side.own("g"), "topics": []}, "nothing")
    all_offsets(side, "g", "one left")
    topic = side.own("a").encode()
    subscription = b"\0\1\0\0\0\1" + len(topic).to_bytes(2, "big") + topic + b"\xff\xff\xff\xff"
    member = only_member(side, "reading", protocols=(("range", subscription),))
    commit_offset(side, "reading", "a member", generation=member.generation, member=member.id)
    delete_offsets(side, "reading", "of a topic that is read")


@scenario
def last_offset_deleted(side: Side) -> None:
    """Delete the last offset of a group: of one group with OffsetDelete, and of another group by deleting the topic."""
    create(side, "a")
    create(side, "gone")
    coordinator(side, "g", GROUP)
    commit_offset(side, "g")
    delete_offsets(side, "g", "the last")
    describe_groups(side, "g", label="no offsets left")
    commit_offset(side, "h", topic="gone")
    side.get(ApiKey.DELETE_TOPICS, 5, {"topic_names": [side.own("gone")], "timeout_ms": 5000})
    asked = {"group_id": side.own("h"), "topics": None}
    side.get(ApiKey.OFFSET_FETCH, 7, asked, until=lambda answer: not answer.topics)
    describe_groups(side, "h", label="topic deleted")
    members = only_member(side, "left")
    leave(side, "left", (members.id, None))
    delete_offsets(side, "left", "in a group that lost its members")


@scenario
def groups_listed(side: Side) -> None:
    """List groups by state and type; only the groups of this scenario are compared."""
    create(side, "a")
    coordinator(side, "g", GROUP)
    commit_offset(side, "offsets")
    only_member(side, "stable")
    joined(side, "completing")
    join(side, "pending", label="only a pending member")

    settle_groups(side)

    def ask(version: int, label: str = "all", **filters: list[str]) -> None:
        answer = side.get(ApiKey.LIST_GROUPS, version, filters)
        own = [one for one in answer.groups if one.group_id.startswith(side.prefix)]
        found = sorted(
            [side.plain.text(one.group_id), one.protocol_type, one.group_state, one.group_type] for one in own
        )
        side.note(f"ListGroups v{version} {label}", [answer.error_code, found])

    for version in range(6):
        ask(version)
    for states in (["Stable"], ["stable"], ["Empty"], ["CompletingRebalance"], ["Nonsense"], ["Empty", "Stable"], [""]):
        ask(4, f"states {' '.join(states)}", states_filter=states)
    for kind in ("classic", "Classic", "consumer", "nonsense", "share", ""):
        ask(5, f"type {kind}", types_filter=[kind])
    ask(5, "type and state", types_filter=["classic"], states_filter=["Empty"])


@scenario
def groups_described(side: Side) -> None:
    """Send DescribeGroups for an unknown group, for the empty group id, and for a group that is named twice."""
    create(side, "a")
    coordinator(side, "g", GROUP)
    commit_offset(side, "g")
    describe_groups(side, "none", label="unknown")
    describe_groups(side, "g", "g", label="twice")
    describe_groups(side, label="none")
    for version in range(7):
        describe_groups(side, "none", version=version, label="unknown")
    asked = {"groups": [side.own("g")], "include_authorized_operations": True}
    side.ask(ApiKey.DESCRIBE_GROUPS, 6, asked, "operations")
    delete_groups(side, "none", label="unknown")
