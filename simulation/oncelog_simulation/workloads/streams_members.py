"""Members of a streams group (KIP-1071), which join and leave, get tasks, and commit offsets of their tasks.

A member commits larger offsets than all members before it, so that a committed offset that goes back shows a commit of
a member that no longer had the task. The members note which tasks they got in which epoch, and complain if

- two members got the same active task in one epoch,
- a commit for a task is accepted although another member has got the task in a later epoch, or
- a commit is accepted after the member has left the group.

The judge `streams tasks` looks at the coordinators' state, and requires that all tasks are assigned in the end.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from oncelog import Admin, KafkaError
from oncelog.admin import AlterConfig, ConfigResource
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from oncelog_simulation.workloads.kept_groups import keep_group
from oncelog_simulation.workloads.notes import Notes, Owner
from oncelog_simulation.workloads.streams_wire import (
    ALL_TASKS,
    INPUT,
    JOINING,
    PARTITIONS,
    STREAMS_GROUP,
    StreamsWire,
    Task,
    Tasks,
    place_of,
    tasks_in,
)
from oncelog_simulation.workloads.wire import Wire
from oncelog_simulation.workloads.workload import COMMON, ClientWorkload, make_topic, pause
from oncelog_testing.history.events import Outcome, Place

if TYPE_CHECKING:
    from oncelog_simulation.world import World

GROUP_CONFIGS: Final = {"streams.num.standby.replicas": "1"}
BEAT_SECONDS: Final = 0.3
"""Virtual seconds after a heartbeat; then, the member commits an offset and sends the next heartbeat."""
STAY_SECONDS: Final = (2.0, 10.0)
"""Minimum and maximum virtual seconds after which a member leaves the group."""
CLINGS: Final = 0.3
"""Fraction of the heartbeats that still claim the tasks which the member must give up."""
LATE: Final = 0.3
"""Fraction of the commits for tasks that the member has given up, as in a late request."""
STALLS: Final = 0.05
"""Fraction of the pauses that are long; applies only until the faults are over."""
STALL_SECONDS: Final = 8.0
"""Mean virtual seconds of a long pause, which is often longer than the session timeout."""
GONE: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
"""Errors after which a member gives up all tasks and joins again."""
NONE: Final[Tasks] = frozenset()


class StreamsMember(ClientWorkload):
    """A process of a streams application with one thread; it repeatedly leaves the group and joins again."""

    def __init__(self, notes: Notes, name: str) -> None:
        super().__init__(notes, name)
        self._stays = 0

    async def prepare(self, world: World) -> None:
        await make_topic(world, self.notes, INPUT, PARTITIONS)
        await world.client("operator").run(lambda: _configure(world, self.notes))

    async def live(self, world: World) -> None:
        rng = self.random(world)
        while True:
            is_calm = world.calm.is_set()
            self._stays += 1
            async with Wire(world.bootstrap_servers) as wire:
                member = Membership(world, self.notes, wire, f"{self.name}/{self.lives}.{self._stays}", self.name)
                await self._stay(world, member, rng, until=world.now + rng.uniform(*STAY_SECONDS))
            if is_calm:
                return

    async def _stay(self, world: World, member: Membership, rng: Random, until: float) -> None:
        """Be a member until the time `until` or the end of the faults, whichever comes first. A member that joins after
        the faults stays until the members that are in the group have all tasks.
        """
        began_in_calm = world.calm.is_set()
        while True:
            await member.beat(clings=rng.random() < CLINGS and not world.calm.is_set())
            if began_in_calm:
                if have_all_tasks(self.notes):
                    break
            elif world.now > until or world.calm.is_set():
                break
            await pause(world, rng.expovariate(1 / STALL_SECONDS) if rng.random() < STALLS else BEAT_SECONDS)
            if member.lost and rng.random() < LATE:
                await member.commit_late(rng)
            elif member.active and await member.commit(rng.choice(sorted(member.active)), member.epoch):
                self.notes.step(self.name)
        if began_in_calm or rng.random() < 0.7:
            await member.leave()
            self.notes.step(self.name)
        member.forget()


class Membership:
    """One member of the group from its first heartbeat to its last. `active` and `standby` are the tasks that the
    member works on; the coordinator knows no other member with an active task of `active`.
    """

    def __init__(self, world: World, notes: Notes, wire: Wire, member_id: str, process_id: str) -> None:
        self._world = world
        self._notes = notes
        self._wire = StreamsWire(wire, member_id, process_id)
        self.member_id = member_id
        self.epoch = JOINING
        self.active = NONE
        self.standby = NONE
        self.lost: dict[Task, int] = {}
        """The last epoch in which the member had each task that it has given up as a member."""
        self._assigned = NONE
        """The active tasks of the last response that listed tasks."""

    async def beat(self, *, clings: bool = False) -> None:
        """Send a heartbeat, and note the tasks of the response. A member that clings still claims and processes the
        tasks that it must give up. Raises KafkaError for errors that a member does not expect.
        """
        if not clings:
            self.lost.update(dict.fromkeys(self.active - self._assigned, self.epoch))
            self.active &= self._assigned
        if self.epoch == JOINING:
            answer = await self._wire.join()
        else:
            answer = await self._wire.beat(self.epoch, self.active, self.standby)
        code = ErrorCode.of(answer.error_code)
        if code in GONE:
            self.forget()
        elif code:
            raise KafkaError(code)
        else:
            self._believe(answer)

    def _believe(self, answer: StreamsGroupHeartbeatResponse) -> None:
        self.epoch = answer.member_epoch
        if answer.active_tasks is None:
            return
        self._assigned = tasks_in(answer.active_tasks)
        self.standby = tasks_in(answer.standby_tasks or ())
        self.active |= self._assigned
        self._notes.streams_tasks[self.member_id] = self._assigned
        for task in sorted(self._assigned):
            self.got(task, self.epoch)

    def got(self, task: Task, epoch: int) -> None:
        """Note that a response assigns the task to the member in this epoch; complain if the task was another member's
        in the same epoch.
        """
        holder = self._notes.streams_holders.setdefault((task, epoch), self.member_id)
        if holder != self.member_id:
            what = f"got task {task} in epoch {epoch}, in which {holder} has the task"
            self._notes.complain(self._world, self.member_id, what)
        known = self._notes.owners.get((STREAMS_GROUP, place_of(task)))
        if known is None or known.epoch <= epoch:
            self._notes.owners[STREAMS_GROUP, place_of(task)] = Owner(self.member_id, epoch)

    async def commit_late(self, rng: Random) -> None:
        """Commit an offset of a task that the member has given up, with the epoch in which it had the task; only if
        another member has the task.
        """
        task, epoch = rng.choice(sorted(self.lost.items()))
        owner = self._notes.owners.get((STREAMS_GROUP, place_of(task)))
        if owner is not None and owner.name != self.member_id and owner.epoch > epoch:
            await self.commit(task, epoch)

    async def commit(self, task: Task, epoch: int) -> bool:
        """Commit an offset of a task; returns whether the coordinator has accepted the commit. The coordinator must
        refuse the commit if another member got the task, in a later epoch, before the commit was sent.
        """
        place, history = place_of(task), self._notes.history
        owner = self._notes.owners.get((STREAMS_GROUP, place))
        offset = self._notes.streams_offsets[place] = self._notes.streams_offsets.get(place, 0) + 1
        commit = history.commit(STREAMS_GROUP, place, offset)
        code = await self._wire.commit(epoch, place, offset)
        history.commit_answered(commit, Outcome.UNKNOWN if code else Outcome.ACKNOWLEDGED)
        if not code and owner is not None and owner.name != self.member_id and owner.epoch > epoch:
            what = f"committed {offset} of task {task} in epoch {epoch}, but {owner} has the task"
            self._notes.complain(self._world, self.member_id, what)
        return not code

    async def leave(self) -> None:
        """Leave the group, and commit once more, which the coordinator must refuse."""
        tasks, epoch = self.active, self.epoch
        self.forget()
        if await self._wire.leave() or not tasks:
            return
        task = min(tasks)
        if not await self._wire.commit(epoch, place_of(task), self._notes.streams_offsets.get(place_of(task), 0)):
            what = f"committed an offset of task {task} in epoch {epoch} after it had left the group"
            self._notes.complain(self._world, self.member_id, what)

    def forget(self) -> None:
        """Give up all tasks; the next heartbeat joins."""
        self.epoch, self.active, self.standby, self._assigned = JOINING, NONE, NONE, NONE
        self.lost.clear()
        self._notes.streams_tasks.pop(self.member_id, None)


def have_all_tasks(notes: Notes) -> bool:
    """Return whether the members in the group have, together, each active task."""
    return frozenset().union(*notes.streams_tasks.values()) >= ALL_TASKS


async def _configure(world: World, notes: Notes) -> None:
    """Set the group's configuration, and commit an offset that keeps the group. Repeated changes have no further
    effect.
    """
    changes = [AlterConfig(key, value) for key, value in GROUP_CONFIGS.items()]
    async with Admin(world.bootstrap_servers, **COMMON) as admin:
        await admin.incremental_alter_configs({ConfigResource.group(STREAMS_GROUP): changes})
        await keep_group(admin, notes, STREAMS_GROUP, Place(INPUT))
