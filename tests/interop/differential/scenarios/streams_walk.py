"""Sends random requests of two members of one streams group (KIP-1071), determined by a seed.

Two members share four tasks. Which member gets a task depends on the order of a hash table in Apache Kafka, but the
numbers of tasks and the epochs do not, so the walk compares these.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.interop.differential.calls import GROUP, coordinator
from tests.interop.differential.members import commit_offset, settle_groups
from tests.interop.differential.side import Side
from tests.interop.differential.streams_members import StreamsMember, create_known, size, subtopology, topology

from oncelog_protocol.api import ApiKey

TASKS: Final = 4
MEMBERS: Final = "mn"


class StreamsWalk:
    """Send random legal and illegal requests of two members, one request after another.

    A member leaves only when both members have their tasks, because in Apache Kafka a member may lose a task for ever
    if another member leaves while it releases tasks (`tasks-again` in docs/differences.md). The last member does not
    leave, because the assignment epochs of empty groups are a known difference.
    """

    def __init__(self, side: Side, seed: int, steps: int) -> None:
        self.side = side
        self.chance = Random(seed)
        self.steps = steps
        self.members: list[StreamsMember] = []
        self.joined: list[StreamsMember] = []
        self.step = 0

    def run(self) -> None:
        create_known(self.side, "a", TASKS)
        coordinator(self.side, "g", GROUP)
        asked = topology(subtopology("0", self.side.own("a")))
        self.members = [StreamsMember(self.side, "g", name, asked) for name in MEMBERS]
        kinds: dict[Callable[[StreamsMember], None], int] = {
            self.join: 12,
            self.own: 40,
            self.beat: 12,
            self.odd_epoch: 10,
            self.leave: 8,
            self.commit: 10,
            self.describe: 10,
        }
        self.join(self.members[0])
        for step in range(self.steps):
            self.step = step
            member = self.chance.choice(self.members)
            move = self.chance.choices(list(kinds), list(kinds.values()))[0]
            if member not in self.joined and self.chance.random() < 0.6:
                move = self.join
            move(member)
        self.settle()
        self.describe(self.members[0])

    def note(self, member: StreamsMember, what: str, answer: Any) -> None:
        """Record the epoch and the number of tasks of a heartbeat response, and the codes of its statuses."""
        tasks = answer.active_tasks and sum(len(one.partitions) for one in answer.active_tasks)
        codes = [one.status_code for one in answer.status or ()]
        self.side.note(
            f"{self.step}: {member.id} {what}",
            [answer.error_code, answer.member_epoch, tasks, codes, size(member.active)],
        )

    def join(self, member: StreamsMember) -> None:
        """Join, or rejoin without tasks."""
        if member in self.joined and not self.settle():
            return
        answer = member.quiet_join()
        self.note(member, "joins", answer)
        if member not in self.joined and not answer.error_code:
            self.joined.append(member)

    def own(self, member: StreamsMember) -> None:
        """Report the assigned tasks."""
        self.note(member, "owns", member.quiet())

    def beat(self, member: StreamsMember) -> None:
        """Send a heartbeat that says nothing new."""
        self.note(member, "stays", member.quiet(says_tasks=False))

    def odd_epoch(self, member: StreamsMember) -> None:
        epoch = member.epoch + self.chance.choice((1, 2, 7))
        member.beat(f"{self.step}: {member.id}, odd epoch", member_epoch=epoch)

    def leave(self, member: StreamsMember) -> None:
        if len(self.joined) < len(MEMBERS) or not self.settle():
            return
        member.leave(f"{self.step}: {member.id} leaves")
        self.joined.remove(member)

    def settle(self) -> bool:
        """Let all members report their tasks until nothing changes. Returns whether all tasks are assigned."""
        for _ in range(4):
            for member in self.joined:
                member.quiet()
        assigned = sum(size(member.active) for member in self.joined)
        self.side.note(f"{self.step}: settled", [assigned, sorted(size(member.active) for member in self.joined)])
        return assigned == TASKS

    def commit(self, member: StreamsMember) -> None:
        epoch = member.epoch + self.chance.choice((0, 0, 1))
        label = f"{self.step}: {member.id} commits at {epoch}"
        commit_offset(self.side, "g", label, offset=self.step, generation=epoch, member=member.id, version=9)

    def describe(self, member: StreamsMember) -> None:
        settle_groups(self.side)
        (group,) = self.side.get(ApiKey.STREAMS_GROUP_DESCRIBE, 0, {"group_ids": [self.side.own("g")]}).groups
        members = sorted((one.member_id, one.member_epoch) for one in group.members)
        self.side.note(
            f"{self.step}: described",
            [group.error_code, group.group_state, group.group_epoch, group.assignment_epoch, members],
        )
