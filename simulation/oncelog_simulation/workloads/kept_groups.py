"""Commits an offset for a group, so that no coordinator deletes the group while it has no member.

A coordinator checks groups every `offsets.retention.check.interval.ms`, and deletes a group that has neither a member
nor a committed offset; the generations or epochs of a later group with the same name begin at 1 again. A workload that
compares the epochs of members would take that for a violation, so it commits an offset for its group first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog import Admin, TopicPartition
from oncelog_simulation.workloads.notes import Notes
from oncelog_testing.history.events import Outcome, Place

if TYPE_CHECKING:
    from oncelog_simulation.world import World

LONG_SECONDS: Final = 100.0
"""A run whose workloads work for fewer virtual seconds ends before any coordinator first checks its groups."""


async def keep_group(admin: Admin, notes: Notes, group: str, place: Place) -> None:
    """Commit the offset 0 for the group, which must have no members, and note the commit in the history. Repeated calls
    have no further effect. Raises KafkaError.
    """
    noted = notes.history.commit(group, place, 0)
    await admin.groups.alter_offsets(group, {TopicPartition(*place): 0})
    notes.history.commit_answered(noted, Outcome.ACKNOWLEDGED)


def is_long(world: World) -> bool:
    """Return whether the run lasts so long that a coordinator may delete a group that is not kept."""
    return world.plan.seconds >= LONG_SECONDS
