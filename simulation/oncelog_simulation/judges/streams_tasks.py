"""An active task of a streams group has at most one member, and after the faults each task has a member.

The judge looks at the groups of each coordinator after each turn of a broker. When all workloads have ended, a last
member joins, and must get all tasks: the coordinator must have noticed that all other members have left or died.

A power cut of all in-sync replicas may destroy the state of the group, and a coordinator whose log is the only in-sync
replica, and damaged, cannot change the state. In both cases the judge requires nothing in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from oncelog import KafkaError
from oncelog_broker.coordinator.group.streams.streams_group import StreamsGroup
from oncelog_broker.coordinator.group.streams.streams_member import StreamsMember
from oncelog_simulation.judges.committed import Committed
from oncelog_simulation.judges.damage import has_only_damaged
from oncelog_simulation.workloads.notes import Notes
from oncelog_simulation.workloads.streams_members import BEAT_SECONDS, Membership
from oncelog_simulation.workloads.streams_wire import ALL_TASKS, STREAMS_GROUP, Task
from oncelog_simulation.workloads.wire import Wire

if TYPE_CHECKING:
    from oncelog_simulation.machine import BrokerMachine
    from oncelog_simulation.world import World

SETTLE_SECONDS: Final = 45.0
"""Virtual seconds in which the last member must get all tasks; sessions of dead members expire after six seconds."""
WORKLOAD: Final = "streams-member"
"""A run is judged only if its plan has a workload whose name begins with this prefix."""
LAST: Final = "last-streams-member"


class StreamsTasks:
    """Checks the streams group of each coordinator, and its assignment in the end."""

    name = "streams tasks"
    sees_only_partitions = False

    def __init__(self, notes: Notes, committed: Committed) -> None:
        self._notes = notes
        self._committed = committed
        self._seen: dict[int, tuple[int, ...]] = {}
        """For each broker, the identities of the group's members (values that never change) at the last check."""

    def look(self, world: World, machine: BrokerMachine) -> Iterable[str]:
        """Return the active tasks that have two members."""
        running = None if machine.broker is None else machine.broker.parts.coordinators.present
        if running is None:
            return ()
        wrong: list[str] = []
        for coordinating in running.groups.runtime.machines():
            group = coordinating.groups.get(STREAMS_GROUP)
            if isinstance(group, StreamsGroup):
                members = tuple(map(id, group.members.values()))
                if self._seen.get(machine.number) != members:
                    self._seen[machine.number] = members
                    wrong += (f"broker {machine.number}: {each}" for each in tasks_with_two(group.members.values()))
        return wrong

    def look_closely(self, world: World) -> Iterable[str]:
        return ()

    async def conclude(self, world: World) -> Iterable[str]:
        """Return the tasks that no member gets after the faults."""
        missing: set[Task] = set(ALL_TASKS)

        async def join() -> None:
            async with Wire(world.bootstrap_servers) as wire:
                member = Membership(world, self._notes, wire, LAST, LAST)
                while missing:
                    await member.beat()
                    missing.clear()
                    missing.update(ALL_TASKS - member.active)
                    await asyncio.sleep(BEAT_SECONDS)
                await member.leave()

        limit = SETTLE_SECONDS * world.plan.leisure
        try:
            async with asyncio.timeout(limit):
                await world.client(LAST).run(join)
        except (TimeoutError, KafkaError) as error:
            if self._committed.excused or has_only_damaged(world):
                return ()
            named = ", ".join(map(str, sorted(missing)))
            return [f"{limit:g} s after the calm the only member has not got the tasks {named}: {error!r}"]
        return ()


def tasks_with_two(members: Iterable[StreamsMember]) -> Iterator[str]:
    """Yield a violation for each active task that two members have, or have yet to give up."""
    owners: dict[Task, str] = {}
    for member in members:
        for tasks in (member.assigned, member.pending_revocation):
            for name, numbers in tasks.active.items():
                for number in numbers:
                    owner = owners.setdefault((name, number), member.member_id)
                    if owner != member.member_id:
                        yield f"{owner} and {member.member_id} both have the active task {name}_{number}"
