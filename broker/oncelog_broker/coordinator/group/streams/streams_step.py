"""One step of a streams group: the group, its context, and the effects so far. Pure."""

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
    """`group` is the group as the log has it. `groups` are all groups of the machine, by id. `settings` are those of
    this group, `topics` the topics of the cluster."""

    group: StreamsGroup
    groups: Mapping[str, object]
    effects: Effects
    config: GroupConfig
    settings: StreamsGroupSettings
    topics: TopicView
    now_ms: int

    @property
    def assignment_configs(self) -> Configs:
        """The present settings on which an assignment depends, as the log has them."""
        return {NUM_STANDBY_REPLICAS: str(self.settings.num_standby_replicas)}

    def partitions_of(self, name: str) -> int | None:
        """The number of partitions of a topic; None if it does not exist."""
        topic_id = self.topics.id_of(name)
        return None if topic_id is None else self.topics.partitions_of(topic_id)

    def start_session(self, member_id: str) -> None:
        """Expect a heartbeat within the session timeout."""
        self._start_timer(TimerKind.SESSION, member_id, self.settings.session_timeout_ms)

    def follow_reconciliation(self, member: StreamsMember) -> None:
        """A member that is to give tasks up has its rebalance timeout for it."""
        if member.is_revoking:
            self._start_timer(TimerKind.REBALANCE, member.member_id, member.rebalance_timeout_ms)
        else:
            self._cancel_timer(TimerKind.REBALANCE, member.member_id)

    def start_initial_delay(self) -> None:
        """Assign the first tasks of a group after the initial rebalance delay."""
        self._start_timer(TimerKind.INITIAL_DELAY, "", self.settings.initial_rebalance_delay_ms)

    def cancel_timers(self, member_id: str) -> None:
        """All timers of a member."""
        for kind in (TimerKind.SESSION, TimerKind.REBALANCE):
            self._cancel_timer(kind, member_id)

    def start_timers(self) -> None:
        """The group was just loaded: its members have one session timeout to send a heartbeat."""
        for member in self.group.members.values():
            self.start_session(member.member_id)
            if member.is_revoking:
                self.follow_reconciliation(member)

    def logged_group(self) -> StreamsGroup | None:
        """The group after the records of the step have been replayed: for changes and jobs, which run after the
        replay."""
        found = self.groups.get(self.group.group_id)
        return found if isinstance(found, StreamsGroup) else None

    def _start_timer(self, kind: str, member_id: str, ms: int) -> None:
        self.effects.start_timer(GroupTimer(kind, self.group.group_id, member_id), ms / 1000)

    def _cancel_timer(self, kind: str, member_id: str) -> None:
        self.effects.cancel_timer(GroupTimer(kind, self.group.group_id, member_id))
