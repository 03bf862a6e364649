"""One step of a share group: the group, what may be known, and the effects so far. Pure."""

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
    """What the rim does once the records of a step are committed: have the share coordinators initialize share
    partitions. `starts`: start offsets by topic id and partition, -1: by the group's share.auto.offset.reset."""

    group_id: str
    state_epoch: int
    starts: Mapping[bytes, Mapping[int, int]]

    @property
    def topics(self) -> Target:
        """The share partitions."""
        return {topic_id: frozenset(starts) for topic_id, starts in self.starts.items()}


class ShareStep(NamedTuple):
    """`group` is the group as the log has it. `groups` are all groups of the machine, by id. `settings` are those of
    this group, `topics` the topics of the cluster."""

    group: ShareGroup
    groups: Mapping[str, object]
    effects: Effects
    config: GroupConfig
    settings: ShareGroupSettings
    topics: TopicView
    now_ms: int

    def start_session(self, member_id: str) -> None:
        """Expect a heartbeat within the session timeout."""
        timer = GroupTimer(TimerKind.SESSION, self.group.group_id, member_id)
        self.effects.start_timer(timer, self.settings.session_timeout_ms / 1000)

    def end_session(self, member_id: str) -> None:
        self.effects.cancel_timer(GroupTimer(TimerKind.SESSION, self.group.group_id, member_id))

    def start_sessions(self) -> None:
        """The group was just loaded: members have a session timeout's time to show that they are still there."""
        for member_id in self.group.members:
            self.start_session(member_id)

    def logged_group(self) -> ShareGroup | None:
        """The group once the records of the step are replayed: for changes and jobs, which come after that."""
        found = self.groups.get(self.group.group_id)
        return found if isinstance(found, ShareGroup) else None
