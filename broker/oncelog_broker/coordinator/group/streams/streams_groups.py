"""The streams groups of one group state machine, with the functions that the state machine calls. Pure.

A group id belongs to only one protocol, so the groups of all protocols are in one dict, `groups`. `StreamsGroups` adds
and removes only streams groups in this dict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.classic_group import ClassicGroup
from oncelog_broker.coordinator.group.config import GroupConfig, StreamsGroupSettings
from oncelog_broker.coordinator.group.held_bytes import HeldBytes
from oncelog_broker.coordinator.group.records import group_record
from oncelog_broker.coordinator.group.step import GroupTimer, TimerKind
from oncelog_broker.coordinator.group.streams import heartbeat, streams_leaving
from oncelog_broker.coordinator.group.streams.heartbeat_request import StreamsHeartbeat
from oncelog_broker.coordinator.group.streams.streams_group import StreamsGroup
from oncelog_broker.coordinator.group.streams.streams_step import StreamsStep
from oncelog_broker.coordinator.group.streams.streams_target import (
    StreamsAssigned,
    on_initial_delay_over,
    take_assigned,
)
from oncelog_broker.coordinator.group.streams_records import KINDS, StreamsGroupEpochRecord, StreamsGroupRecord
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_protocol.errors import ErrorCode, KafkaError

MAX_ENDPOINT_EPOCH_START: Final = 2**30
"""Upper limit of the random endpoint epochs that groups get when they are loaded from the log."""


class StreamsGroups:
    """Handles requests and records of streams groups. `remove(group_id)` removes a group of any protocol. The other
    parameters have the same meaning as in `GroupMachine` (`coordinator/group/machine.py`).
    """

    def __init__(
        self,
        groups: dict[str, Any],
        remove: Callable[[str], None],
        config: GroupConfig,
        now_ms: Callable[[], int],
        held: HeldBytes,
        topics: Callable[[], TopicView],
        overrides_of: Callable[[str], Mapping[str, str]],
    ) -> None:
        self._groups = groups
        self._remove = remove
        self._config = config
        self._now_ms = now_ms
        self._held = held
        self._topics = topics
        self._overrides_of = overrides_of

    # --- methods for the state machine of all groups

    def has(self, record: object) -> bool:
        """Whether the record is a record of a streams group."""
        return KINDS.has(record)

    def replay(self, record: StreamsGroupRecord) -> None:
        """Apply a logged record to the streams groups. A tombstone of a group that is no longer a streams group has no
        effect.
        """
        group = self._groups.get(record.group_id)
        if not isinstance(group, StreamsGroup):
            if record.value is None:
                return
            self._remove(record.group_id)
            group = self._groups[record.group_id] = StreamsGroup(record.group_id, self._held)
        if isinstance(record, StreamsGroupEpochRecord) and record.value is None:
            self._remove(record.group_id)
        else:
            group.replay(record)

    def on_loaded(self, group: StreamsGroup, effects: Effects) -> None:
        """Start the timers of a group that was loaded from the log. Endpoint epochs are not logged. The group starts
        with a random endpoint epoch, which differs from the epochs that the previous coordinator sent to members.
        """
        group.endpoint_epoch = self._now_ms() // 1000 % MAX_ENDPOINT_EPOCH_START
        self._step(group, effects).start_timers()

    def on_timer(self, group: StreamsGroup, timer: GroupTimer, effects: Effects) -> None:
        """Handle an expired timer: a session timeout, a rebalance timeout, or the end of the initial rebalance
        delay."""
        step = self._step(group, effects)
        if timer.kind == TimerKind.INITIAL_DELAY:
            on_initial_delay_over(step)
        else:
            streams_leaving.on_member_timer(step, timer.kind, timer.member_id)

    def on_job(self, group: StreamsGroup, result: object) -> Effects:
        if isinstance(result, StreamsAssigned):
            return take_assigned(group, result, self._now_ms())
        return Effects()

    def on_failed(self, group: StreamsGroup, effects: Effects) -> None:
        """Restart the timers of the group after an append of its records has failed. The logged state of the group is
        intact. The initial rebalance delay ends, since its timer may have expired in the failed step."""
        group.checked_topics = None
        group.delayed_until_ms = 0
        self._step(group, effects).start_timers()

    # --- methods that handle requests of members ----------------------------------------------------------------------

    def heartbeat(self, asked: StreamsHeartbeat) -> Effects:
        """Handle a StreamsGroupHeartbeat. A classic group without members is replaced by a streams group, which keeps
        the committed offsets. Raises KafkaError GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID,
        FENCED_MEMBER_EPOCH, INVALID_REQUEST, MESSAGE_TOO_LARGE, COORDINATOR_NOT_AVAILABLE.
        """
        group_id, effects = asked.request.group_id, Effects()
        group = self._groups.get(group_id)
        if asked.joins and (group is None or (isinstance(group, ClassicGroup) and not group.members)):
            if group is not None and group.is_logged:
                effects.append(group_record(group_id, None))
            group = StreamsGroup(group_id, self._held)
        step = self._step(find_streams_group(group, group_id), effects)
        if asked.leaves:
            streams_leaving.leave(step, asked)
        else:
            heartbeat.heartbeat(step, asked)
        return effects

    # --- private helpers of `StreamsGroups` ---------------------------------------------------------------------------

    def _step(self, group: StreamsGroup, effects: Effects) -> StreamsStep:
        own = self._overrides_of(group.group_id)
        settings: StreamsGroupSettings = self._config.streams
        return StreamsStep(
            group,
            self._groups,
            effects,
            self._config,
            settings.with_own(own) if own else settings,
            self._topics(),
            self._now_ms(),
        )


def find_streams_group(group: object, group_id: str) -> StreamsGroup:
    """Return `group` if it is a streams group. Raises KafkaError GROUP_ID_NOT_FOUND."""
    if not isinstance(group, StreamsGroup):
        what = "not found" if group is None else "is not a streams group"
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
    return group
