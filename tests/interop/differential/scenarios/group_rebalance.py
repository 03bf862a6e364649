"""Compares classic groups in which two members go from one generation to the next."""

from __future__ import annotations

from tests.interop.differential.calls import GROUP, coordinator
from tests.interop.differential.members import (
    SUBSCRIPTION,
    Member,
    await_state,
    delete_groups,
    describe_groups,
    heartbeat,
    join,
    join_request,
    leave,
    only_member,
    sync,
    sync_request,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey


@scenario
def second_member(side: Side) -> None:
    """Let a second member join; both get assignments, and both leave."""
    coordinator(side, "g", GROUP)
    first = only_member(side, "g")
    given = join(side, "g", label="second", connection="second").member_id
    describe_groups(side, "g", label="with a pending member")
    side.send(ApiKey.JOIN_GROUP, 7, join_request(side, "g", given), "second")
    await_state(side, "g", "PreparingRebalance")
    heartbeat(side, "g", first, "during the rebalance")
    describe_groups(side, "g", label="preparing")
    sync(side, "g", first, label="during the rebalance")
    answer = join(side, "g", first.id, "first comes back")
    side.receive(ApiKey.JOIN_GROUP, 7, "second", "second")
    first = Member(first.id, answer.generation_id)
    second = Member(given, answer.generation_id)
    describe_groups(side, "g", label="completing")
    heartbeat(side, "g", first, "completing, leader")
    heartbeat(side, "g", second, "completing, follower")
    side.send(ApiKey.SYNC_GROUP, 5, sync_request(side, "g", second), "second")
    sync(side, "g", first, [(first.id, b"A"), (second.id, b"B")])
    side.receive(ApiKey.SYNC_GROUP, 5, "second", "second")
    describe_groups(side, "g", label="stable")
    join(side, "g", second.id, "follower comes back, nothing new", connection="second")
    leave(side, "g", (first.id, None))
    heartbeat(side, "g", second, "after the leader left")
    delete_groups(side, "g", label="not empty")
    leave(side, "g", (second.id, None))
    describe_groups(side, "g", label="both left")
    delete_groups(side, "g", "g", "none", label="empty, twice, unknown")
    describe_groups(side, "g", label="deleted")


@scenario
def votes(side: Side) -> None:
    """Let both members support the same two protocols, but prefer different ones."""
    coordinator(side, "g", GROUP)
    first = only_member(side, "g")
    given = join(side, "g", label="second", connection="second").member_id
    likes = ("range", SUBSCRIPTION), ("rr", SUBSCRIPTION)
    side.send(ApiKey.JOIN_GROUP, 7, join_request(side, "g", given, protocols=likes), "second")
    await_state(side, "g", "PreparingRebalance")
    join(side, "g", first.id, "tie", protocols=likes[::-1])
    side.receive(ApiKey.JOIN_GROUP, 7, "tie", "second")


@scenario
def common_protocol(side: Side) -> None:
    """Compare which protocol is chosen: the one that most members prefer among those that all members support."""
    coordinator(side, "g", GROUP)
    first = only_member(side, "g")
    given = join(side, "g", label="second", connection="second").member_id
    likes = ("other", SUBSCRIPTION), ("range", SUBSCRIPTION), ("rr", SUBSCRIPTION)
    side.send(ApiKey.JOIN_GROUP, 7, join_request(side, "g", given, protocols=likes), "second")
    await_state(side, "g", "PreparingRebalance")
    join(side, "g", first.id, "first", protocols=(("range", SUBSCRIPTION), ("rr", SUBSCRIPTION), ("rr2", b"")))
    side.receive(ApiKey.JOIN_GROUP, 7, "second", "second")


@scenario
def one_is_late(side: Side) -> None:
    """Let a member miss the rebalance timeout, after which it is removed."""
    coordinator(side, "g", GROUP)
    first = only_member(side, "g", rebalance_ms=1000)
    given = join(side, "g", label="second", rebalance_ms=1000).member_id
    join(side, "g", given, "second", rebalance_ms=1000)
    heartbeat(side, "g", first, "the late one")
    describe_groups(side, "g", label="after it")
