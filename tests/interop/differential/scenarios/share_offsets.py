"""Compares DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping

from tests.interop.differential.batches import batch
from tests.interop.differential.calls import create, fill
from tests.interop.differential.members import delete_groups, group_name
from tests.interop.differential.scenario import scenario
from tests.interop.differential.share_members import (
    ACCEPT,
    EMPTY_MS,
    describe_share_groups,
    describe_share_offsets,
    reader,
    share_group,
)
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey


def alter_offsets(side: Side, group: str, offsets: Mapping[tuple[str, int], int], label: str) -> None:
    topics: dict[str, list[dict[str, int]]] = {}
    for (name, partition), offset in offsets.items():
        topics.setdefault(side.own(name), []).append({"partition_index": partition, "start_offset": offset})
    asked = {
        "group_id": group_name(side, group),
        "topics": [{"topic_name": name, "partitions": partitions} for name, partitions in topics.items()],
    }
    side.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, asked, label)


def delete_share_offsets(side: Side, group: str, *topics: str, label: str) -> None:
    asked = {"group_id": group_name(side, group), "topics": [{"topic_name": side.own(name)} for name in topics]}
    side.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, asked, label)


@scenario
def describing(side: Side) -> None:
    """Describe offsets of groups, topics and partitions, known and unknown."""
    create(side, "a", 2)
    create(side, "b")
    share_group(side)
    fill(side, "a", [batch(3)])
    member = reader(side, {"a": [0, 1]})
    for version in (0, 1):
        describe_share_offsets(side, "g", label="all", version=version)
        describe_share_offsets(side, "g", {"a": [0, 1]}, "named", version=version)
        describe_share_offsets(side, "g", {"a": []}, "no partitions", version=version)
        describe_share_offsets(side, "g", {}, "no topics", version=version)
        describe_share_offsets(side, "g", {"b": [0]}, "not subscribed", version=version)
        describe_share_offsets(side, "g", {"none": [0]}, "unknown topic", version=version)
        describe_share_offsets(side, "none", label="unknown group, all", version=version)
        describe_share_offsets(side, "none", {"a": [0]}, "unknown group", version=version)
        describe_share_offsets(side, "", label="empty group id", version=version)
    both = [{"group_id": side.own(name), "topics": None} for name in ("g", "none")]
    side.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": both}, "two groups")
    side.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": []}, "no groups")
    member.leave()
    describe_share_offsets(side, "g", label="without members")
    describe_share_offsets(side, "g", {"a": [9]}, "unknown partition", patience=1.0)


@scenario
def altering(side: Side) -> None:
    """Alter offsets with and without members, and read from the new offsets."""
    create(side, "a", 2)
    share_group(side)
    fill(side, "a", [batch(5)])
    a = "a", 0
    alter_offsets(side, "new", {a: 2}, "new group")
    describe_share_groups(side, "new", label="new group")
    describe_share_offsets(side, "new", label="new group")
    member = reader(side, {"a": [0, 1]})
    alter_offsets(side, "g", {a: 2}, "with a member")
    member.fetch("all", {"a": [0]})
    member.acknowledge("accept", {a: [(0, 4, [ACCEPT])]})
    member.close()
    member.leave("leave")
    alter_offsets(side, "g", {a: 3}, "without members")
    alter_offsets(side, "g", {("a", 1): 7}, "beyond the end")
    describe_share_offsets(side, "g", label="altered")
    alter_offsets(side, "g", {("a", 9): 0, ("none", 0): 0, a: 1}, "unknown ones")
    alter_offsets(side, "g", {a: -1}, "negative")
    alter_offsets(side, "g", {}, "nothing")
    alter_offsets(side, "", {a: 0}, "empty group id")
    describe_share_offsets(side, "g", label="at last")


@scenario
def reading_altered(side: Side) -> None:
    """Read from offsets that were altered."""
    create(side, "a")
    share_group(side)
    fill(side, "a", [batch(5)])
    alter_offsets(side, "g", {("a", 0): 3}, "before the first member")
    member = reader(side, {"a": [0]})
    member.fetch("from 3", {"a": [0]})
    member.close()
    member.leave("leave")
    alter_offsets(side, "g", {("a", 0): 1}, "back")
    member = reader(side, {"a": [0]}, "next")
    member.fetch("from 1", {"a": [0]})


@scenario
def deleting(side: Side) -> None:
    """Delete offsets with and without members, and read again."""
    create(side, "a", 2)
    create(side, "b")
    share_group(side)
    fill(side, "a", [batch(2)])
    delete_share_offsets(side, "g", "a", label="unknown group")
    member = reader(side, {"a": [0, 1]})
    member.fetch("all", {"a": [0]})
    member.acknowledge("accept", {("a", 0): [(0, 1, [ACCEPT])]})
    delete_share_offsets(side, "g", "a", label="with a member")
    member.close()
    member.leave("leave")
    delete_share_offsets(side, "g", "b", label="not subscribed")
    delete_share_offsets(side, "g", "none", label="unknown")
    delete_share_offsets(side, "g", label="nothing")
    delete_share_offsets(side, "", "a", label="empty group id")
    delete_share_offsets(side, "g", "a", label="without members")
    delete_share_offsets(side, "g", "a", label="again")
    describe_share_offsets(side, "g", label="deleted")
    describe_share_groups(side, "g", label="deleted")
    member = reader(side, {"a": [0, 1]}, "next")
    member.fetch("from the beginning", {"a": [0]}, wait_ms=EMPTY_MS)
    member.close()
    member.leave("leave")
    delete_groups(side, "g", label="the group")
    describe_share_offsets(side, "g", {"a": [0, 1]}, "group deleted")
