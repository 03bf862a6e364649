"""Compares classic groups with one member, which joins, stays and leaves; also sends each kind of invalid request of
such a member.
"""

from __future__ import annotations

from dataclasses import replace

from tests.interop.differential.calls import GROUP, coordinator, create
from tests.interop.differential.members import (
    ASSIGNMENT,
    SUBSCRIPTION,
    Member,
    await_state,
    commit_offset,
    delete_groups,
    describe_groups,
    heartbeat,
    join,
    joined,
    leave,
    only_member,
    sync,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.scenarios.odd_batches import SILENCE_SECONDS
from tests.interop.differential.side import Side

from oncelog_protocol.errors import ErrorCode

OTHER = (("other", SUBSCRIPTION),)


@scenario
def versions(side: Side) -> None:
    """Let a member join, stay and leave, in every version."""
    coordinator(side, "g", GROUP)
    for version in range(10):
        group = f"g{version}"
        answer = join(side, group, version=version)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = join(side, group, answer.member_id, "with the id given", version=version)
        member = Member(answer.member_id, answer.generation_id)
        sync(side, group, member, [(member.id, ASSIGNMENT)], version=min(version, 5))
        heartbeat(side, group, member, version=min(version, 4))
        describe_groups(side, group, version=min(version, 6), label="stable")
        leave(side, group, (member.id, None), version=min(version, 5))
        describe_groups(side, group, version=min(version, 6), label="left")
    for version in (0, 1, 2):
        delete_groups(side, f"g{version}", version=version)


@scenario
def join_timeouts(side: Side) -> None:
    """Try the limits of session and rebalance timeouts."""
    coordinator(side, "g", GROUP)
    join(side, "", label="empty group")
    for session_ms in (0, -1, 1, 5999, 6000, 1_800_000, 1_800_001, 2**31 - 1):
        join(side, f"s{session_ms}", label=f"session {session_ms}", session_ms=session_ms)
        join(side, f"v{session_ms}", label=f"session {session_ms}", session_ms=session_ms, version=1)
    for rebalance_ms in (0, -1, 2**31 - 1):
        join(side, f"r{rebalance_ms}", label=f"rebalance {rebalance_ms}", rebalance_ms=rebalance_ms, version=3)


@scenario
def join_alone(side: Side) -> None:
    """Vary the protocols, types, member ids and instance ids of the first member of a group."""
    coordinator(side, "g", GROUP)
    for version in (3, 7):
        join(side, "g", label="no protocols", protocols=(), version=version)
        join(side, "g", label="empty type", protocol_type="", version=version)
    for version in (7, 3):
        join(side, f"u{version}", "nobody", "unknown member", version=version)
        describe_groups(side, f"u{version}", label="after an unknown member")
    for number, (instance, label) in enumerate((("", "empty"), ("a b/ä", "odd"), ("x" * 300, "long"), (".", "dot"))):
        join(side, f"i{number}", label=f"instance: {label}", instance=instance)


@scenario
def protocol_twice(side: Side) -> None:
    """Name one protocol twice, and compare whether the group continues."""
    coordinator(side, "g", GROUP)
    twice = (("range", SUBSCRIPTION), ("range", SUBSCRIPTION))
    join(side, "g", label="protocol twice", protocols=twice, version=3, patience=SILENCE_SECONDS, session_ms=6000)


@scenario
def unreadable_subscription(side: Side) -> None:
    """Join as a consumer with metadata that cannot be parsed."""
    coordinator(side, "g", GROUP)
    join(side, "g", label="garbage", protocols=(("range", b"x" * 300),), version=3, patience=SILENCE_SECONDS)


@scenario
def unreadable_metadata(side: Side) -> None:
    """Join with a protocol type other than "consumer", and with metadata that would be invalid for a consumer."""
    coordinator(side, "g", GROUP)
    join(side, "g", label="not of a consumer", protocols=(("range", b"x" * 300),), version=3, protocol_type="connect")


@scenario
def join_a_stable_group(side: Side) -> None:
    """Join a stable group with values that do not fit the group, which must be refused; then let the leader
    join again.
    """
    coordinator(side, "g", GROUP)
    only_member(side, "g")
    join(side, "g", label="another protocol", protocols=OTHER)
    join(side, "g", label="another protocol", protocols=OTHER, version=3)
    join(side, "g", label="another type", protocol_type="connect", version=3)
    join(side, "g", label="empty type", protocol_type="", version=3)
    join(side, "g", label="no protocols", protocols=(), version=3)
    changing = only_member(side, "changing")
    join(side, "changing", changing.id, "its own protocol changes", protocols=OTHER)
    again = only_member(side, "again")
    join(side, "again", again.id, "the leader comes back")
    heartbeat(side, "again", again, "then")


@scenario
def pending_members(side: Side) -> None:
    """Use the id of a pending member, which was assigned an id and has not joined with it."""
    coordinator(side, "g", GROUP)
    given = join(side, "g", label="the first request").member_id
    heartbeat(side, "g", Member(given, 0), "pending")
    sync(side, "g", Member(given, 0), label="pending")
    describe_groups(side, "g", label="pending")
    leave(side, "g", (given, None), label="pending")
    describe_groups(side, "g", label="the pending one left")
    join(side, "g", given, "with the id that was given up")


@scenario
def pending_members_with_an_instance(side: Side) -> None:
    """Let a pending member, which was assigned a member id, join with an instance id that it never had before."""
    coordinator(side, "g", GROUP)
    given = join(side, "g", label="the first request").member_id
    join(side, "g", given, "pending, with an instance", instance="i")
    leave(side, "g", (given, "i"), label="pending, with an instance")


@scenario
def pending_member_leaves_others(side: Side) -> None:
    """Let a pending member leave beside a healthy member."""
    coordinator(side, "g", GROUP)
    member = only_member(side, "g")
    given = join(side, "g", label="another").member_id
    leave(side, "g", (given, None), label="pending")
    heartbeat(side, "g", member, "after the pending one left")


@scenario
def sync_wrong(side: Side) -> None:
    """Send SyncGroup with wrong members, generations, groups and names, and compare the assignments."""
    coordinator(side, "g", GROUP)
    member = joined(side, "g")
    for odd, label in (
        (replace(member, id="nobody"), "unknown member"),
        (replace(member, generation=member.generation + 1), "next generation"),
        (replace(member, generation=member.generation - 1), "generation before"),
        (replace(member, generation=-1), "generation -1"),
    ):
        sync(side, "g", odd, label=label)
    sync(side, "none", member, label="unknown group")
    sync(side, "", member, label="empty group")
    sync(side, "g", member, label="wrong type", protocol_type="connect")
    sync(side, "g", member, label="wrong protocol", protocol="roundrobin")
    heartbeat(side, "g", member, "not assigned yet")
    sync(side, "g", member, [(member.id, b"one"), ("other", b"x")], "with a stranger")
    sync(side, "g", member, [], "again")
    sync(side, "g", member, [(member.id, b"two")], "again with another")
    describe_groups(side, "g")


@scenario
def sync_without_protocol(side: Side) -> None:
    """Send SyncGroup version 5 without the required protocol type and name."""
    coordinator(side, "g", GROUP)
    for number, (protocol_type, protocol) in enumerate(((None, None), ("consumer", None), (None, "range"))):
        group = f"g{number}"
        member = joined(side, group)
        label = f"type {protocol_type}, protocol {protocol}"
        assigned = [(member.id, ASSIGNMENT)]
        sync(side, group, member, assigned, label, protocol_type=protocol_type, protocol=protocol)
        describe_groups(side, group, label=label)


@scenario
def heartbeats(side: Side) -> None:
    """Send right and wrong heartbeats in every version."""
    coordinator(side, "g", GROUP)
    member = only_member(side, "g")
    for version in range(5):
        heartbeat(side, "g", member, version=version)
        heartbeat(side, "g", replace(member, generation=member.generation + 1), "next generation", version=version)
        heartbeat(side, "g", replace(member, id="nobody"), "unknown member", version=version)
        heartbeat(side, "none", member, "unknown group", version=version)
        heartbeat(side, "", member, "empty group", version=version)
    heartbeat(side, "g", replace(member, generation=-1), "generation -1")
    heartbeat(side, "g", replace(member, id=""), "no member")


@scenario
def leaving(side: Side) -> None:
    """Send right and wrong LeaveGroup requests in every version."""
    coordinator(side, "g", GROUP)
    member = only_member(side, "g")
    for version in range(6):
        leave(side, "g", ("nobody", None), version=version, label="unknown member")
        leave(side, "none", ("nobody", None), version=version, label="unknown group")
        leave(side, "", ("nobody", None), version=version, label="empty group")
    leave(side, "g", label="none")
    leave(side, "g", ("", None), label="empty member")
    leave(side, "g", (member.id, "instance"), label="own member with an instance")
    leave(side, "g", (member.id, None), (member.id, None), label="twice")
    leave(side, "g", (member.id, None), label="again")
    heartbeat(side, "g", member, "after it left")
    sync(side, "g", member, label="after it left")
    join(side, "g", member.id, "after it left")
    describe_groups(side, "g")


@scenario
def session_ends(side: Side) -> None:
    """Let the session of a silent member end."""
    coordinator(side, "g", GROUP)
    member = only_member(side, "g", session_ms=6000)
    await_state(side, "g", "Empty")
    heartbeat(side, "g", member, "after its session")
    join(side, "g", member.id, "after its session")


@scenario
def static_members(side: Side) -> None:
    """Let a member with an instance id return under a new member id, which fences the old one."""
    create(side, "a")
    coordinator(side, "g", GROUP)
    first = join(side, "g", instance="i", label="first")
    old = Member(first.member_id, first.generation_id, "i")
    sync(side, "g", old, [(old.id, ASSIGNMENT)])
    heartbeat(side, "g", old)
    heartbeat(side, "g", replace(old, instance="other"), "another instance")
    heartbeat(side, "g", replace(old, instance=None), "without its instance")
    second = join(side, "g", instance="i", label="comes back")
    new = Member(second.member_id, second.generation_id, "i")
    current = replace(old, generation=new.generation)
    heartbeat(side, "g", current, "old member")
    sync(side, "g", current, label="old member")
    join(side, "g", old.id, "old member", instance="i")
    join(side, "g", old.id, "old member without its instance")
    heartbeat(side, "g", new, "new member")
    commit_offset(side, "g", "old member", generation=new.generation, member=old.id, instance="i")
    commit_offset(side, "g", "new member", generation=new.generation, member=new.id, instance="i")
    sync(side, "g", new, label="new member")
    describe_groups(side, "g", label="came back")
    join(side, "g", instance="i", label="another subscription", protocols=(("range", SUBSCRIPTION + b"x"),))
    join(side, "g", instance="i", version=9, label="comes back again")
    leave(side, "g", ("", "nobody"), label="unknown instance")
    leave(side, "g", (old.id, "i"), label="old member and instance")
    leave(side, "g", ("", "i"), label="by instance")
    describe_groups(side, "g", label="left")
