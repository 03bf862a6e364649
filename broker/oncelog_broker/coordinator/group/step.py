"""One step (call of the state machine) of a classic group: the group, its context, and the effects so far. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.classic_group import ClassicGroup, Member
from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.records import group_record
from oncelog_protocol.errors import ErrorCode, KafkaError

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""Maximum milliseconds for which the JoinGroup of a new member waits. A new member cannot send heartbeats yet, so
without this limit a dead new member would never be removed."""


class TimerKind:
    """The kinds of a group's timers."""

    SESSION: Final = "session"
    """Session timer: expires when a member has sent no heartbeat within its session timeout. It also expires when a
    client got a member id from the broker and has not joined with this id in time.
    """
    JOIN: Final = "join"
    """Join timer: expires at the end of the time during which members may rejoin."""
    SYNC: Final = "sync"
    """Sync timer: expires at the end of the time during which members may request their assignment (SyncGroup)."""
    REBALANCE: Final = "rebalance"
    """Rebalance timer: expires when a member of the consumer protocol has not revoked partitions in time.
    """
    INITIAL_DELAY: Final = "initial delay"
    """Initial rebalance delay: during this time the first members of a streams group join; when it expires, tasks are
    assigned.
    """
    REJOIN: Final = "rejoin"
    """Expires immediately after the group has become a classic group, whose members must then join again."""


class GroupTimer(NamedTuple):
    """The name of a timer; `member_id` is "" for timers of the entire group. In a group of the consumer protocol each
    classic member has its own join and sync timers."""

    kind: str
    group_id: str
    member_id: str = ""


class Step(NamedTuple):
    """The context of one step (call of the state machine): the classic group, the settings, and the effects so far.
    `new_id()` creates the unique part of a member id; `now_ms` is wall time."""

    group: ClassicGroup
    effects: Effects
    config: GroupConfig
    now_ms: int
    new_id: Callable[[], str]

    def start_session(self, member: Member, timeout_ms: int | None = None) -> None:
        """Start the session timer of a member. The timer expires after `timeout_ms`; None means the member's session
        timeout.
        """
        key = GroupTimer(TimerKind.SESSION, self.group.group_id, member.member_id)
        self.effects.start_timer(key, (member.session_timeout_ms if timeout_ms is None else timeout_ms) / 1000)

    def start_sessions(self) -> None:
        """Start the session timers of all members of a group that was loaded from the log."""
        for member in self.group.members.values():
            self.start_session(member)

    def end_session(self, member_id: str) -> None:
        self.effects.cancel_timer(GroupTimer(TimerKind.SESSION, self.group.group_id, member_id))

    def start_timer(self, kind: str, ms: int) -> None:
        self.effects.start_timer(GroupTimer(kind, self.group.group_id), ms / 1000)

    def cancel_timer(self, kind: str) -> None:
        self.effects.cancel_timer(GroupTimer(kind, self.group.group_id))

    def cancel_timers(self) -> None:
        """Cancel all timers of this group, except session timers of member ids with which no client has joined yet."""
        for member_id in self.group.members:
            self.end_session(member_id)
        self.cancel_timer(TimerKind.JOIN)
        self.cancel_timer(TimerKind.SYNC)

    def refuse(self, member_id: str, code: ErrorCode) -> None:
        """Reply to all waiting requests of this member with an error."""
        for waiting in (self.group.joining, self.group.syncing):
            waiter = waiting.get(member_id)
            if waiter is not None:
                self.effects.reply(waiter, KafkaError(code))

    def become_empty(self) -> None:
        """Log that the last members of the group leave. This function only adds records to the effects; the group
        changes when the record is replayed.
        """
        self.cancel_timers()
        self.effects.append(group_record(self.group.group_id, self.group.empty_value(self.now_ms)))
