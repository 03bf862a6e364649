"""One step of a group's state machine: the group, its context, and the effects so far. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.classic_group import ClassicGroup, Member
from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.records import group_record
from oncelog_protocol.errors import ErrorCode, KafkaError

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""How long the JoinGroup of a new member may wait: it cannot send heartbeats yet, so a dead one would stay for ever."""


class TimerKind:
    """The kinds of a group's timers."""

    SESSION: Final = "session"
    """A member sent no heartbeat, or did not join with the id that it was given."""
    JOIN: Final = "join"
    """Members had their time to rejoin."""
    SYNC: Final = "sync"
    """Members had their time to ask for their assignment."""
    REBALANCE: Final = "rebalance"
    """A member of the consumer protocol had its time to give partitions up."""
    INITIAL_DELAY: Final = "initial delay"
    """Members of a streams group that was empty had their time to join before tasks are assigned."""
    REJOIN: Final = "rejoin"
    """The group has just become classic: its members must join again."""


class GroupTimer(NamedTuple):
    """Names a timer; `member_id` is "" for timers of the whole group. In a group of the consumer protocol each classic
    member has join and sync timers of its own."""

    kind: str
    group_id: str
    member_id: str = ""


class Step(NamedTuple):
    """`new_id()` makes the unique part of a member id."""

    group: ClassicGroup
    effects: Effects
    config: GroupConfig
    now_ms: int
    new_id: Callable[[], str]

    def start_session(self, member: Member, timeout_ms: int | None = None) -> None:
        """Expect a sign of life within the session timeout."""
        key = GroupTimer(TimerKind.SESSION, self.group.group_id, member.member_id)
        self.effects.start_timer(key, (member.session_timeout_ms if timeout_ms is None else timeout_ms) / 1000)

    def start_sessions(self) -> None:
        """The group was loaded from the log: its members have one session timeout to send a heartbeat."""
        for member in self.group.members.values():
            self.start_session(member)

    def end_session(self, member_id: str) -> None:
        self.effects.cancel_timer(GroupTimer(TimerKind.SESSION, self.group.group_id, member_id))

    def start_timer(self, kind: str, ms: int) -> None:
        self.effects.start_timer(GroupTimer(kind, self.group.group_id), ms / 1000)

    def cancel_timer(self, kind: str) -> None:
        self.effects.cancel_timer(GroupTimer(kind, self.group.group_id))

    def cancel_timers(self) -> None:
        """Cancel all timers of this group, except those of members that were given an id and have not joined yet."""
        for member_id in self.group.members:
            self.end_session(member_id)
        self.cancel_timer(TimerKind.JOIN)
        self.cancel_timer(TimerKind.SYNC)

    def refuse(self, member_id: str, code: ErrorCode) -> None:
        """Answer all waiting requests of this member with an error."""
        for waiting in (self.group.joining, self.group.syncing):
            waiter = waiting.get(member_id)
            if waiter is not None:
                self.effects.reply(waiter, KafkaError(code))

    def become_empty(self) -> None:
        """The last members go. Nothing but effects: the group changes when the record is replayed."""
        self.cancel_timers()
        self.effects.append(group_record(self.group.group_id, self.group.empty_value(self.now_ms)))
