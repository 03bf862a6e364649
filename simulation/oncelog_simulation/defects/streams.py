"""Defects of streams groups: tasks that two members have, commits for tasks of others, and members that have died."""

from __future__ import annotations

from typing import Final

from oncelog_simulation.defects.defect import Defect

STREAMS: Final = ("streams-member-1", "streams-member-2", "offsets-watcher")

FAULTS: Final = ("kill", "pause", "stop", "session ends", "kill a client", "slow links")
"""The faults that strike while these defects are hunted, unless a defect names its own faults."""

DEFECTS: Final = (
    Defect(
        "task-given-before-revoked",
        "the coordinator gives an active task to a member before its owner has given it up (KIP-1071)",
        "oncelog_broker.coordinator.group.streams.streams_group",
        "        if owner is not None and (role is Role.ACTIVE or self",
        "        if owner is not None and (role is not Role.ACTIVE and self",
        STREAMS,
        20,
    ),
    Defect(
        "revoked-tasks-forgotten",
        "the tasks that a member must still give up are not replayed from the log",
        "oncelog_broker.coordinator.group.streams.streams_member",
        "                epoch_tasks_of(value.active_tasks_pending_revocation, epoch),\n",
        "                epoch_tasks_of((), epoch),\n",
        STREAMS,
        60,
    ),
    Defect(
        "old-task-committed",
        "a member of a streams group may commit offsets of a task that another member has got since",
        "oncelog_broker.coordinator.group.streams.streams_epochs",
        "    if epoch == member.epoch:\n        return None\n",
        "    if epoch <= member.epoch:\n        return None\n",
        STREAMS,
        20,
    ),
    Defect(
        "dead-streams-member-stays",
        "a member of a streams group whose session has ended stays in the group",
        "oncelog_broker.coordinator.group.streams.streams_leaving",
        "        return\n    fence(step, member_id)\n",
        "        return\n",
        STREAMS,
        40,
        ("kill a client", "pause"),
    ),
)
