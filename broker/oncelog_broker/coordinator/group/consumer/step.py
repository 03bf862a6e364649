"""One step of a consumer group: the group, its context, and the effects so far. Pure."""

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
    """`group` is the logged group, or the group after the records with which the step began have been replayed.

    `groups` are all groups of the machine, by id. `settings` are the settings of this group, `topics` the topics of the
    cluster; `new_id()` makes a member id."""

    group: ConsumerGroup
    groups: Mapping[str, object]
    effects: Effects
    config: GroupConfig
    settings: ConsumerGroupSettings
    topics: TopicView
    now_ms: int
    new_id: Callable[[], str]

    def start_session(self, member: ConsumerMember) -> None:
        """Expect a heartbeat within the session timeout: the group's, or a classic member's own."""
        timeout = self.settings.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
        self.start_timer(TimerKind.SESSION, member.member_id, timeout)

    def start_timer(self, kind: str, member_id: str, ms: int) -> None:
        self.effects.start_timer(GroupTimer(kind, self.group.group_id, member_id), ms / 1000)

    def cancel_timer(self, kind: str, member_id: str) -> None:
        self.effects.cancel_timer(GroupTimer(kind, self.group.group_id, member_id))

    def cancel_timers(self, member_id: str) -> None:
        """All timers of a member."""
        for kind in (TimerKind.SESSION, TimerKind.REBALANCE, TimerKind.JOIN, TimerKind.SYNC):
            self.cancel_timer(kind, member_id)

    def follow_reconciliation(self, member: ConsumerMember) -> None:
        """A member that is to give partitions up has its rebalance timeout for it. Classic members have their own
        timers."""
        if member.classic is not None:
            return
        if member.is_revoking:
            self.start_timer(TimerKind.REBALANCE, member.member_id, member.rebalance_timeout_ms)
        else:
            self.cancel_timer(TimerKind.REBALANCE, member.member_id)

    def logged_group(self) -> ConsumerGroup | None:
        """The group after the records of the step have been replayed: for changes and jobs, which run after the
        replay."""
        found = self.groups.get(self.group.group_id)
        return found if isinstance(found, ConsumerGroup) else None

    def start_timers(self) -> None:
        """The group was just loaded: restart the session timeouts of all members."""
        for member in self.group.members.values():
            self.start_session(member)
            if member.is_revoking:
                self.follow_reconciliation(member)
