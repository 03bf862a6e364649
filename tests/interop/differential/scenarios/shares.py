"""Compares share groups (KIP-932): heartbeats of members, descriptions, and groups of other kinds."""

from __future__ import annotations

from collections.abc import Sequence

from tests.interop.differential.calls import GROUP, coordinator, create
from tests.interop.differential.members import (
    all_offsets,
    await_setting,
    commit_offset,
    delete_groups,
    delete_offsets,
    describe_groups,
    join,
    only_member,
    settle_groups,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.scenarios.configs import DELETE, SET, alter, describe
from tests.interop.differential.scenarios.configs import GROUP as GROUP_CONFIG
from tests.interop.differential.share_members import (
    ShareMember,
    assigned,
    describe_share_groups,
    describe_share_offsets,
    reader,
    share_group,
)
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey


@scenario
def bad_heartbeats(side: Side) -> None:
    """Send heartbeats that no group accepts."""
    create(side, "a")
    coordinator(side, "g", GROUP)
    member = ShareMember(side, "g", "m")
    member.beat("unknown group, epoch 5", epoch=5)
    member.beat("unknown group, leave", epoch=-1)
    member.beat("no topics")
    member.beat("empty topics", topics=[])
    member.beat("empty rack", topics=["a"], rack_id="")
    member.beat("epoch -2", epoch=-2, topics=["a"])
    ShareMember(side, "g", "").beat("empty member id", topics=["a"])
    ShareMember(side, "g", "m" * 36).beat("member id of 36 characters", topics=["a"])
    ShareMember(side, "g", "m" * 37).beat("member id of 37 characters", topics=["a"])
    ShareMember(side, "", "m").beat("empty group id", topics=["a"])


@scenario
def one_member(side: Side) -> None:
    """Let a member join, stay, change its subscription, rejoin and leave."""
    create(side, "a", 2)
    create(side, "b")
    share_group(side)
    member = ShareMember(side, "g", "m")
    member.beat("join", topics=["a"])
    describe_share_groups(side, "g", label="joined")
    member.settle({"a": [0, 1]})
    member.beat("nothing new")
    member.beat("same topics", topics=["a"])
    describe_share_groups(side, "g", label="with partitions", include_authorized_operations=True)
    member.beat("next epoch", epoch=member.epoch + 1)
    member.beat("epoch of the join", epoch=1)
    member.beat("previous epoch", epoch=member.epoch - 1)
    ShareMember(side, "g", "stranger", 1).beat("stranger")
    ShareMember(side, "g", "stranger").leave("stranger leaves")
    member.beat("another topic", topics=["b"])
    member.settle({"b": [0]})
    member.beat("both topics", topics=["a", "b"])
    member.settle({"a": [0, 1], "b": [0]})
    member.beat("unknown topic", topics=["none"])
    describe_share_groups(side, "g", label="unknown topic")
    member.beat("back", topics=["a"])
    member.settle({"a": [0, 1]})
    member.beat("rejoin", epoch=0, topics=["a"])
    member.beat("rejoin without topics", epoch=0)
    member.beat("with a rack", rack_id="r")
    describe_share_groups(side, "g", label="with a rack")
    member.leave("leave")
    member.beat("after it left", epoch=3)
    member.leave("leave again")
    describe_share_groups(side, "g", label="empty")


@scenario
def descriptions(side: Side) -> None:
    """Describe groups that are unknown, named twice, or have an empty name."""
    create(side, "a")
    share_group(side)
    reader(side, {"a": [0]})
    describe_share_groups(side, "g", label="known")
    describe_share_groups(side, "g", "none", label="unknown")
    describe_share_groups(side, "g", "g", label="twice")
    describe_share_groups(side, "", label="empty name")
    describe_share_groups(side, label="none")


@scenario
def two_members(side: Side) -> None:
    """Let two members share three partitions, more members than partitions, and members of different topics."""
    create(side, "a", 3)
    create(side, "b")
    share_group(side)
    first = reader(side, {"a": [0, 1, 2]}, "first")
    members = [first]
    for name in ("second", "third", "fourth"):
        members.append(ShareMember(side, "g", name, topics=["a"]))
        note_shares(side, f"{name} joins", *members)
    _, second, third, fourth = members
    for member in (first, third, fourth):
        member.leave(member.id)
    note_shares(side, "one is left", second)
    first.settle({"b": [0]})
    note_shares(side, "different topics", first, second)
    first.topics = ["a", "b"]
    note_shares(side, "one has both", first, second, is_balanced=None)


def note_shares(side: Side, label: str, *members: ShareMember, is_balanced: bool | None = True) -> None:
    """Record which partitions the members have together, and whether they have equally many (not if
    `is_balanced` is None). Which member gets a partition depends on the order of a hash table in Apache Kafka.
    """
    answers = []
    for _ in range(2):  # the first heartbeats may change the assignment
        answers = [side.get(ApiKey.SHARE_GROUP_HEARTBEAT, 1, member.full_heartbeat()) for member in members]
    for member, answer in zip(members, answers, strict=True):
        member.epoch = answer.member_epoch
    found = [assigned(answer) for answer in answers]
    together = sorted({(side.plain.symbols.known("topic", id, "?"), p) for one in found for id in one for p in one[id]})
    sizes = [sum(len(partitions) for partitions in one.values()) for one in found]
    if is_balanced is not None:
        is_balanced = max(sizes) - min(sizes) <= 1
    side.note(label, {"is balanced": is_balanced, "partitions": [list(one) for one in together]})


@scenario
def topics_change(side: Side) -> None:
    """Create, extend and delete a topic that a member subscribes to."""
    create(side, "a")
    share_group(side)
    member = ShareMember(side, "g", "m")
    member.beat("not there yet", topics=["a", "b"])
    create(side, "b")
    member.settle({"a": [0], "b": [0]})
    more = {"topics": [{"name": side.own("a"), "count": 3, "assignments": None}], "timeout_ms": 5000}
    side.get(ApiKey.CREATE_PARTITIONS, 3, more)
    member.settle({"a": [0, 1, 2], "b": [0]})
    side.get(ApiKey.DELETE_TOPICS, 5, {"topic_names": [side.own("b")], "timeout_ms": 5000})
    member.settle({"a": [0, 1, 2]}, topics=["a", "b"])
    create(side, "b")
    member.settle({"a": [0, 1, 2], "b": [0]})
    (group,) = side.get(ApiKey.SHARE_GROUP_DESCRIBE, 1, {"group_ids": [side.own("g")]}).groups
    topics = sorted(len(one.partitions) for member in group.members for one in member.assignment.topic_partitions)
    side.note("made again", [group.error_code, group.group_state, topics])  # the epochs depend on the brokers' speed
    describe_share_offsets(side, "g", label="made again")


@scenario
def kinds_of_groups(side: Side) -> None:
    """Send requests of other kinds of groups to a share group, and requests of share groups to other groups."""
    create(side, "a")
    share_group(side)
    commit_offset(side, "offsets")
    only_member(side, "classic")
    for group in ("offsets", "classic"):
        member = ShareMember(side, group, "m")
        member.beat(f"join {group}", topics=["a"])
        member.beat(f"stay in {group}", epoch=1)
        member.leave(f"leave {group}")
        describe_share_groups(side, group, label=group)
        describe_share_offsets(side, group, label=group)
    member = reader(side, {"a": [0]})
    for label in ("with a member", "empty"):
        join(side, "g", label=f"classic member, {label}")
        beat = {"group_id": side.own("g"), "member_id": "c" * 22, "rebalance_timeout_ms": 5000, "topic_partitions": []}
        topics = {"subscribed_topic_names": [side.own("a")]}
        side.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {"member_epoch": 0, **topics, **beat}, f"consumer joins, {label}")
        side.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {"member_epoch": 1, **beat}, f"consumer stays, {label}")
        side.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [side.own("g")]}, label)
        side.ask(ApiKey.STREAMS_GROUP_DESCRIBE, 0, {"group_ids": [side.own("g")]}, label)
        for version in (5, 6):
            describe_groups(side, "g", label=label, version=version)
        commit_offset(side, "g", f"without a member, {label}", version=9)
        commit_offset(side, "g", f"as a member, {label}", generation=2, member="m", version=9)
        all_offsets(side, "g", label)
        delete_offsets(side, "g", label)
        note_groups(side, label)
        if label == "with a member":
            delete_groups(side, "g", label="with a member")
            member.leave("leave")
    describe_share_offsets(side, "g", label="before it is deleted")
    delete_groups(side, "g", "g", label="empty, twice")
    describe_share_groups(side, "g", label="deleted")
    describe_share_offsets(side, "g", label="deleted")
    note_groups(side, "deleted")
    reader(side, {"a": [0]})
    describe_share_groups(side, "g", label="made again")


def note_groups(side: Side, label: str) -> None:
    """Record the share groups and groups without members of this scenario, by each filter."""
    settle_groups(side)
    for kind, state in (("share", ""), ("Share", ""), ("consumer", ""), ("share", "Empty"), ("share", "stable")):
        filters = {"types_filter": [kind], "states_filter": [state] if state else []}
        answer = side.get(ApiKey.LIST_GROUPS, 5, filters)
        own = [one for one in answer.groups if one.group_id.startswith(side.prefix)]
        found = [[side.plain.text(one.group_id), one.protocol_type, one.group_state, one.group_type] for one in own]
        side.note(f"ListGroups {kind} {state} {label}", [answer.error_code, sorted(found)])


KEYS = (
    ("share.session.timeout.ms", ("45000", "44999", "60001", "x")),
    ("share.heartbeat.interval.ms", ("5000", "4999", "15001")),
    ("share.record.lock.duration.ms", ("1000", "999", "60001")),
    ("share.delivery.count.limit", ("2", "1", "10", "11")),
    ("share.partition.max.record.locks", ("100", "99", "4000", "4001")),
    (
        "share.auto.offset.reset",
        ("earliest", "latest", "none", "by_duration:PT1H", "by_duration:1", "by_duration:-PT1H"),
    ),
    ("share.isolation.level", ("read_committed", "read_uncommitted", "committed")),
    ("share.renew.acknowledge.enable", ("true", "false", "maybe")),
    ("share.assignment.interval.ms", ("0", "15000", "15001", "-1")),
    ("share.no.such.key", ("1",)),
)


@scenario
def settings(side: Side) -> None:
    """Set the keys of share groups to values that are allowed, and to others."""
    coordinator(side, "g", GROUP)
    try_settings(side, KEYS)


def try_settings(side: Side, keys: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Set keys of the group "g" to each of the values, describe the keys, and delete them."""
    name = side.own("g")
    for key, values in keys:
        now = None
        for value in values:
            answer = alter(side, f"{key}={value}", GROUP_CONFIG, name, (key, SET, value))
            now = now if answer.responses[0].error_code else value
        if now is not None:
            await_setting(side, "g", key, now)
        describe(side, key, GROUP_CONFIG, name, [key])
        describe(side, f"{key} with synonyms", GROUP_CONFIG, name, [key], include_synonyms=True)
        alter(side, f"delete {key}", GROUP_CONFIG, name, (key, DELETE, None))
    describe(side, "default", GROUP_CONFIG, side.own("none"), [key for key, _ in keys])
