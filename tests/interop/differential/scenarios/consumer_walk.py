"""Sends random requests of the members of one consumer group of the new protocol (KIP-848), determined by a seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tests.interop.differential.calls import create
from tests.interop.differential.consumer_members import (
    LEAVE,
    LEAVE_FOR_A_WHILE,
    ConsumerMember,
    consumer_group,
    describe_consumer_groups,
)
from tests.interop.differential.members import Member as ClassicMember
from tests.interop.differential.members import all_offsets, commit_offset, heartbeat, join
from tests.interop.differential.side import Side

MEMBERS: Final = "mno"
STATIC: Final = "o"
"""The member that has an instance id; all other members have none."""
SUBSCRIPTIONS: Final = (("a",), ("b",), ("a", "b"), ("a", "none"), ())


class ConsumerWalk:
    """Send random legal and illegal requests of three members, one request after another.

    The last member does not leave, because the assignment epochs of empty groups are a known difference between the
    brokers, after which the two groups would differ for the rest of the walk.
    """

    def __init__(self, side: Side, seed: int, steps: int) -> None:
        self.side = side
        self.chance = Random(seed)
        self.steps = steps
        self.members = [ConsumerMember(side, "g", name, instance="i" if name == STATIC else None) for name in MEMBERS]
        self.joined: set[str] = set()
        self.step = 0

    def run(self) -> None:
        create(self.side, "a", 3)
        create(self.side, "b")
        consumer_group(self.side)
        commit_offset(self.side, "g", "so that the group stays", version=9)
        kinds: dict[Callable[[ConsumerMember], None], int] = {
            self.join: 12,
            self.reconcile: 40,
            self.beat: 10,
            self.odd_beat: 8,
            self.subscribe: 8,
            self.leave: 7,
            self.commit: 15,
            self.read_offsets: 8,
            self.describe: 8,
            self.classic: 3,
        }
        for step in range(self.steps):
            self.step = step
            self.chance.choices(list(kinds), list(kinds.values()))[0](self.chance.choice(self.members))
        for member in self.members:
            member.reconcile(f"at last: {member.id}")
        describe_consumer_groups(self.side, "g", label="at last")
        all_offsets(self.side, "g", "at last", version=10)

    def label(self, member: ConsumerMember, what: str) -> str:
        return f"{self.step}: {member.id} {what}"

    def topics(self) -> tuple[str, ...]:
        return self.chance.choice(SUBSCRIPTIONS)

    def join(self, member: ConsumerMember) -> None:
        topics = self.topics() or ("a",)
        answer = member.join(self.label(member, f"joins, {' '.join(topics)}"), *topics)
        if answer.error_code == 0:
            self.joined.add(member.id)

    def reconcile(self, member: ConsumerMember) -> None:
        member.reconcile(self.label(member, "reports its partitions"))

    def beat(self, member: ConsumerMember) -> None:
        member.beat(self.label(member, "reports nothing"))

    def odd_beat(self, member: ConsumerMember) -> None:
        more, owned = self.chance.choice((-2, -1, 1)), self.chance.choice((None, {}, {"a": [0]}, member.assigned))
        member.beat(self.label(member, f"epoch {more:+d}, {owned}"), epoch=max(1, member.epoch + more), owned=owned)

    def subscribe(self, member: ConsumerMember) -> None:
        topics = self.topics()
        member.beat(self.label(member, f"subscribes to {' '.join(topics)}"), topics=topics)

    def leave(self, member: ConsumerMember) -> None:
        epoch = LEAVE_FOR_A_WHILE if member.id == STATIC and self.chance.random() < 0.7 else LEAVE
        if epoch == LEAVE and self.joined <= {member.id}:
            return
        answer = member.leave(self.label(member, f"leaves with {epoch}"), epoch=epoch)
        if epoch == LEAVE and answer.error_code == 0:
            self.joined.discard(member.id)

    def commit(self, member: ConsumerMember) -> None:
        epoch = member.epoch + self.chance.choice((0, 0, 0, 0, -1, -2, 1))
        partitions, version = self.chance.choice(((0,), (1, 2), (0, 1, 2))), self.chance.choice((9, 10))
        who = self.chance.choice((member.id, member.id, member.id, ""))
        commit_offset(
            self.side,
            "g",
            self.label(member, f"commits as {who!r} in epoch {epoch - member.epoch:+d}"),
            generation=epoch,
            member=who,
            offset=self.step,
            partitions=partitions,
            version=version,
        )

    def read_offsets(self, member: ConsumerMember) -> None:
        epoch, version = member.epoch + self.chance.choice((0, 0, -1, 1)), self.chance.choice((9, 10))
        label = self.label(member, f"reads offsets in epoch {epoch - member.epoch:+d}")
        all_offsets(self.side, "g", label, member=member.id, epoch=epoch, version=version)

    def describe(self, member: ConsumerMember) -> None:
        describe_consumer_groups(self.side, "g", label=f"{self.step}", version=self.chance.choice((0, 1)))

    def classic(self, member: ConsumerMember) -> None:
        """Send a request of the classic protocol, which the group refuses."""
        if self.chance.random() < 0.5:
            heartbeat(self.side, "g", ClassicMember(member.id, member.epoch), self.label(member, "classic heartbeat"))
        else:
            join(self.side, "g", member.id, self.label(member, "classic join"), protocol_type="other")
