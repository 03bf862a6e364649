"""Compares share groups (KIP-932): heartbeats of members, descriptions, and groups of other kinds."""

from __future__ import annotations

from tests.interop.differential.calls import GROUP, coordinator, create
from tests.interop.differential.scenario import scenario
from tests.interop.differential.share_members import ShareMember, describe_share_groups, reader, share_group
from tests.interop.differential.side import Side


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
