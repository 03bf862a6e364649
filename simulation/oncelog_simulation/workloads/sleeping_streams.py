"""A member of a streams group (KIP-1071) that commits an offset of a task, and then leaves or is silent for hours or
days. Afterwards the group must not have the member any more, and must have the committed offset until
`offsets.retention.minutes` have passed.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from oncelog import Admin, TopicPartition
from oncelog_protocol.errors import ErrorCode
from oncelog_simulation.workloads.sleepers import SLACK_SECONDS, Sleeper, SleepingGroup
from oncelog_simulation.workloads.streams_members import GONE, NONE
from oncelog_simulation.workloads.streams_wire import INPUT, PARTITIONS, STREAMS_GROUP, StreamsWire, place_of, tasks_in
from oncelog_simulation.workloads.wire import Wire
from oncelog_simulation.workloads.workload import COMMON, make_topic
from oncelog_testing.history.events import Outcome

if TYPE_CHECKING:
    from oncelog_simulation.world import World

BEAT_SECONDS: Final = 1.0
MOST_BEATS: Final = 60
"""Heartbeats after which a member that has got no task gives up the case."""
SESSION_SECONDS: Final = SLACK_SECONDS
"""Virtual seconds of silence after which a member is surely removed. group.streams.session.timeout.ms is much shorter,
but a coordinator that takes the group over restarts the sessions, and for as long as a fault lasts the group may have
no coordinator.
"""


class SleepingStreams(Sleeper):
    """The only member of its group."""

    setting = SleepingGroup.setting
    unit_seconds = SleepingGroup.unit_seconds
    default_seconds = SleepingGroup.default_seconds

    async def prepare(self, world: World) -> None:
        await super().prepare(world)
        await make_topic(world, self.notes, INPUT, PARTITIONS)

    async def play(self, world: World, wire: Wire, rng: Random) -> None:
        member = StreamsWire(wire, f"{self.name}/{self.lives}.{self._cases}", self.name)
        answer, active = await member.join(), NONE
        for _ in range(MOST_BEATS):
            if answer.error_code:
                return
            active = active if answer.active_tasks is None else tasks_in(answer.active_tasks)
            if active:
                break
            await asyncio.sleep(BEAT_SECONDS)
            answer = await member.beat(answer.member_epoch, active, NONE)
        if not active:
            return
        epoch, place, offsets = answer.member_epoch, place_of(rng.choice(sorted(active))), self.notes.streams_offsets
        offset = offsets[place] = offsets.get(place, 0) + 1
        noted = self.notes.history.commit(STREAMS_GROUP, place, offset)
        refused = await member.commit(epoch, place, offset)
        self.notes.history.commit_answered(noted, Outcome.UNKNOWN if refused else Outcome.ACKNOWLEDGED)
        if refused:
            return
        if rng.random() < 0.5:
            await member.leave()
        slept = await self.sleep(world, rng)
        told = ErrorCode.of((await member.beat(epoch, active, NONE)).error_code)
        if told not in GONE and slept > SESSION_SECONDS:
            self.complain(world, slept, f"the heartbeat of a member that was silent is answered with {told.name}")
        async with Admin(world.bootstrap_servers, **COMMON) as admin:
            found = (await admin.groups.offsets(STREAMS_GROUP)).get(TopicPartition(*place))
        if (found is None or found.offset != offset) and self.must_be_there(world, slept):
            self.complain(world, slept, f"{STREAMS_GROUP} has committed {offset} for {place}, and {found} is there")
        elif found is not None and self.must_be_gone(world, slept):
            self.complain(world, slept, f"{STREAMS_GROUP} has committed {offset} for {place}, which is still there")
