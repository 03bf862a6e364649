"""One step (call of the state machine) of a streams group: the group, its context, and the effects so far. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.config import GroupConfig, StreamsGroupSettings
from oncelog_broker.coordinator.group.step import GroupTimer, TimerKind
from oncelog_broker.coordinator.group.streams.streams_group import Configs, StreamsGroup
from oncelog_broker.coordinator.group.streams.streams_member import StreamsMember
from oncelog_broker.coordinator.group.topic_view import TopicView

NUM_STANDBY_REPLICAS = "num.standby.replicas"


class StreamsStep(NamedTuple):
    """The context of one step (call of the state machine): the group, its settings, and the effects so far. `group` has
    the logged state of the group. `groups` has all groups of the state machine by id. `settings` has the settings of
    this group, and `topics` the topics of the cluster."""

    group: StreamsGroup
    groups: Mapping[str, object]
    effects: Effects
    config: GroupConfig
    settings: StreamsGroupSettings
    topics: TopicView
    now_ms: int

    @property
    def assignment_configs(self) -> Configs:
        """The present settings on which an assignment depends, in the form of the log."""
        return {NUM_STANDBY_REPLICAS: str(self.settings.num_standby_replicas)}

    def start_session(self, member_id: str) -> None:
        """Start the session timer of a member. The timer expires if the member sends no heartbeat within the session
        timeout.
        """
        self._start_timer(TimerKind.SESSION, member_id, self.settings.session_timeout_ms)

    def follow_reconciliation(self, member: StreamsMember) -> None:
        """Start the rebalance timer of a member that must give up tasks; cancel the timer of other members."""
        if member.is_revoking:
            self._start_timer(TimerKind.REBALANCE, member.member_id, member.rebalance_timeout_ms)
        else:
            self._cancel_timer(TimerKind.REBALANCE, member.member_id)

    def start_initial_delay(self) -> None:
        """Start the timer of the initial rebalance delay."""
        self._start_timer(TimerKind.INITIAL_DELAY, "", self.settings.initial_rebalance_delay_ms)

    def cancel_timers(self, member_id: str) -> None:
        """Cancel all timers of a member."""
        for kind in (TimerKind.SESSION, TimerKind.REBALANCE):
            self._cancel_timer(kind, member_id)

    def start_timers(self) -> None:
        """Start the timers of all members of a loaded group: each member must send a heartbeat within its session
        timeout."""
        for member in self.group.members.values():
            self.start_session(member.member_id)
            if member.is_revoking:
                self.follow_reconciliation(member)

    def logged_group(self) -> StreamsGroup | None:
        """Return the group as it is after the replay of the step's records. Changes of soft state, and jobs, use this
        group, because they run after the replay.
        """
        found = self.groups.get(self.group.group_id)
        return found if isinstance(found, StreamsGroup) else None

    def _start_timer(self, kind: str, member_id: str, ms: int) -> None:
        self.effects.start_timer(GroupTimer(kind, self.group.group_id, member_id), ms / 1000)

    def _cancel_timer(self, kind: str, member_id: str) -> None:
        self.effects.cancel_timer(GroupTimer(kind, self.group.group_id, member_id))
