"""One step (call of the state machine) of a consumer group: the group, its context, and the effects so far. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.config import ConsumerGroupSettings, GroupConfig
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from oncelog_broker.coordinator.group.consumer.member import ConsumerMember
from oncelog_broker.coordinator.group.step import GroupTimer, TimerKind
from oncelog_broker.coordinator.group.topic_view import TopicView


class ConsumerStep(NamedTuple):
    """The context of one step (call of the state machine): the group, its settings, and the effects so far. `group` is
    the group in its logged state. If the step creates the group, or converts it from the classic protocol, `group` is
    the state that the group will have after the replay of the records of this step.

    `groups` are all groups of the state machine, by group id. `settings` are the settings of this group, `topics` the
    topics of the cluster; `new_id()` creates a member id.
    """

    group: ConsumerGroup
    groups: Mapping[str, object]
    effects: Effects
    config: GroupConfig
    settings: ConsumerGroupSettings
    topics: TopicView
    now_ms: int
    new_id: Callable[[], str]

    def start_session(self, member: ConsumerMember) -> None:
        """Start the session timer of a member. A classic member has its own session timeout; all other members have the
        session timeout of the group.
        """
        timeout = self.settings.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
        self.start_timer(TimerKind.SESSION, member.member_id, timeout)

    def start_timer(self, kind: str, member_id: str, ms: int) -> None:
        self.effects.start_timer(GroupTimer(kind, self.group.group_id, member_id), ms / 1000)

    def cancel_timer(self, kind: str, member_id: str) -> None:
        self.effects.cancel_timer(GroupTimer(kind, self.group.group_id, member_id))

    def cancel_timers(self, member_id: str) -> None:
        """Cancel all timers of a member."""
        for kind in (TimerKind.SESSION, TimerKind.REBALANCE, TimerKind.JOIN, TimerKind.SYNC):
            self.cancel_timer(kind, member_id)

    def follow_reconciliation(self, member: ConsumerMember) -> None:
        """Start the rebalance timer of a member that must give up partitions; cancel the timer of any other member.
        Members of the classic protocol have other timers instead of the rebalance timer.
        """
        if member.classic is not None:
            return
        if member.is_revoking:
            self.start_timer(TimerKind.REBALANCE, member.member_id, member.rebalance_timeout_ms)
        else:
            self.cancel_timer(TimerKind.REBALANCE, member.member_id)

    def logged_group(self) -> ConsumerGroup | None:
        """Return the group as it is after the replay of the step's records. Changes of soft state, and jobs, use this
        group, because they run after the replay. The result is None if the group no longer exists.
        """
        found = self.groups.get(self.group.group_id)
        return found if isinstance(found, ConsumerGroup) else None

    def start_timers(self) -> None:
        """Start the session and rebalance timers of all members, after the group was loaded."""
        for member in self.group.members.values():
            self.start_session(member)
            if member.is_revoking:
                self.follow_reconciliation(member)
