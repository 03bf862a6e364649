"""One step (call of the state machine) of a share group: the group, its context, and the effects so far. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.assignments import Target
from oncelog_broker.coordinator.group.config import GroupConfig, ShareGroupSettings
from oncelog_broker.coordinator.group.share.share_group import ShareGroup
from oncelog_broker.coordinator.group.step import GroupTimer, TimerKind
from oncelog_broker.coordinator.group.topic_view import TopicView


class InitializeStates(NamedTuple):
    """A request to the share coordinators to initialize share partitions. It is sent after the group's records are
    committed (`Effects.ends`). `starts`: start offsets by topic id and partition; -1 means that the group's
    share.auto.offset.reset decides."""

    group_id: str
    state_epoch: int
    starts: Mapping[bytes, Mapping[int, int]]

    @property
    def topics(self) -> Target:
        """The share partitions to initialize."""
        return {topic_id: frozenset(starts) for topic_id, starts in self.starts.items()}


class ShareStep(NamedTuple):
    """The context of one step (call of the state machine): the group, its settings, and the effects so far. `group` is
    the logged group, `groups` are all groups of the state machine by id. `settings` are the settings of this group,
    `topics` the topics of the cluster, `now_ms` is wall time."""

    group: ShareGroup
    groups: Mapping[str, object]
    effects: Effects
    config: GroupConfig
    settings: ShareGroupSettings
    topics: TopicView
    now_ms: int

    def start_session(self, member_id: str) -> None:
        """Start the session timer of a member."""
        timer = GroupTimer(TimerKind.SESSION, self.group.group_id, member_id)
        self.effects.start_timer(timer, self.settings.session_timeout_ms / 1000)

    def end_session(self, member_id: str) -> None:
        self.effects.cancel_timer(GroupTimer(TimerKind.SESSION, self.group.group_id, member_id))

    def start_sessions(self) -> None:
        """Start the session timers of all members, after the group was loaded."""
        for member_id in self.group.members:
            self.start_session(member_id)

    def logged_group(self) -> ShareGroup | None:
        """Return the group as it is after the replay of the step's records. Changes of soft state, and jobs, use this
        group, because they run after the replay. The result is None if the group no longer exists.
        """
        found = self.groups.get(self.group.group_id)
        return found if isinstance(found, ShareGroup) else None
