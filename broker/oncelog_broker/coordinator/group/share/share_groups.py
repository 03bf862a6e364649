"""The share groups of one group state machine, with the operations that the state machine needs for share groups. Pure.

A group id belongs to only one protocol, so the groups of all protocols are in one dict, `groups`. `ShareGroups` adds
and removes only share groups in this dict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.assignments import Target
from oncelog_broker.coordinator.group.config import GroupConfig, ShareGroupSettings
from oncelog_broker.coordinator.group.held_bytes import HeldBytes
from oncelog_broker.coordinator.group.share import heartbeat, offsets_administration
from oncelog_broker.coordinator.group.share.heartbeat import ShareHeartbeat
from oncelog_broker.coordinator.group.share.offsets_administration import Starts
from oncelog_broker.coordinator.group.share.share_group import ShareGroup
from oncelog_broker.coordinator.group.share.share_step import ShareStep
from oncelog_broker.coordinator.group.share.share_target import ShareAssigned, take_assigned
from oncelog_broker.coordinator.group.share.state_partitions import StatePartitions
from oncelog_broker.coordinator.group.share_records import KINDS, ShareGroupEpochRecord, ShareGroupRecord
from oncelog_broker.coordinator.group.step import GroupTimer
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_protocol.errors import ErrorCode, KafkaError


class ShareGroups:
    """Handles requests and records of share groups. `remove(group_id)` removes a group of any protocol;
    `has_offsets(group_id)` returns whether the group has committed offsets; the other parameters have the same meaning
    as in `GroupMachine` (`coordinator/group/machine.py`).
    """

    def __init__(
        self,
        groups: dict[str, Any],
        remove: Callable[[str], None],
        has_offsets: Callable[[str], bool],
        config: GroupConfig,
        now_ms: Callable[[], int],
        held: HeldBytes,
        topics: Callable[[], TopicView],
        overrides_of: Callable[[str], Mapping[str, str]],
    ) -> None:
        self._groups = groups
        self._remove = remove
        self._has_offsets = has_offsets
        self._config = config
        self._now_ms = now_ms
        self._held = held
        self._topics = topics
        self._overrides_of = overrides_of

    # --- methods for the state machine of all groups

    def replay(self, record: ShareGroupRecord) -> None:
        """Apply a logged record to the share groups. The tombstone of a group that is no longer a share group has no
        effect.
        """
        group = self._groups.get(record.group_id)
        if not isinstance(group, ShareGroup):
            if record.value is None:
                return
            self._remove(record.group_id)
            group = self._groups[record.group_id] = ShareGroup(record.group_id, self._held)
        if isinstance(record, ShareGroupEpochRecord) and record.value is None:
            self._remove(record.group_id)
        else:
            group.replay(record)

    def has(self, record: object) -> bool:
        """Whether the record is a record of a share group."""
        return KINDS.has(record)

    def on_loaded(self, group: ShareGroup, effects: Effects) -> None:
        self._step(group, effects).start_sessions()

    def on_timer(self, group: ShareGroup, timer: GroupTimer, effects: Effects) -> None:
        """Remove a member whose session has timed out."""
        if timer.member_id in group.members:
            heartbeat.fence(self._step(group, effects), timer.member_id)

    def on_job(self, group: ShareGroup, result: object) -> Effects:
        if isinstance(result, ShareAssigned):
            return take_assigned(group, result, self._now_ms())
        return Effects()

    def on_failed(self, group: ShareGroup, effects: Effects) -> None:
        """Restart the session timers of the group after an append of its records has failed. The logged state of the
        group is intact, but timers may be missing.
        """
        group.checked_topics = None
        self._step(group, effects).start_sessions()

    # --- methods that handle requests of members ----------------------------------------------------------------------

    def heartbeat(self, asked: ShareHeartbeat) -> Effects:
        """Handle a ShareGroupHeartbeat. Raises KafkaError GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED,
        UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, MESSAGE_TOO_LARGE, COORDINATOR_NOT_AVAILABLE.
        """
        group_id = asked.request.group_id
        group = self._groups.get(group_id)
        if group is None and asked.joins and not self._has_offsets(group_id):
            group = ShareGroup(group_id, self._held)
        step = self._step(find_share_group(group, group_id), effects := Effects())
        if asked.leaves:
            heartbeat.leave(step, asked)
        else:
            heartbeat.heartbeat(step, asked)
        return effects

    # --- methods about the state of share partitions ------------------------------------------------------------------

    def on_initialized(self, group_id: str, done: Target, failed: Target) -> Effects:
        """Log which share partitions the share coordinators have initialized (`done`) or failed to initialize
        (`failed`). A share partition that the group no longer marks as initializing is ignored.
        """
        effects = Effects()
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return effects
        now = group.state_partitions
        then = now.done(done).failed(failed)
        if then != now:
            effects.append(group.state_record(then))
        return effects

    def topics_deleted(self, group_id: str) -> Effects:
        """Remove deleted topics from the group; the share coordinators delete the state of these topics without a
        request."""
        effects = Effects()
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            gone = [topic for topic in group.state_partitions.topic_ids() if self._topics().name_of(topic) is None]
            if gone:
                effects.append(group.state_record(group.state_partitions.without(gone)))
        return effects

    def all_states(self, group_id: str) -> Target:
        """Return the share partitions whose state a group has initialized; partitions of deleted topics are left out.
        Raises KafkaError GROUP_ID_NOT_FOUND.
        """
        group = find_share_group(self._groups.get(group_id), group_id)
        assignable, topics = group.state_partitions.assignable(), self._topics()
        return {topic: partitions for topic, partitions in assignable.items() if topics.name_of(topic) is not None}

    def alter_offsets(self, group_id: str, starts: Starts) -> tuple[Effects, int]:
        """Log that these share partitions are initialized again. Returns the effects and the new state epoch. Creates
        the group if it does not exist. Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self._groups.get(group_id)
        if group is None and not self._has_offsets(group_id):
            group = ShareGroup(group_id, self._held)
        return offsets_administration.alter(self._step(find_share_group(group, group_id), Effects()), starts)

    def delete_states(self, group_id: str, topic_ids: frozenset[bytes] | None) -> tuple[Effects, Target]:
        """Log that the share-partition state of these topics is being deleted; None means all topics of the group.
        Returns the effects and the share partitions to delete. Raises KafkaError GROUP_ID_NOT_FOUND,
        NON_EMPTY_GROUP."""
        group = find_share_group(self._groups.get(group_id), group_id)
        return offsets_administration.delete(self._step(group, Effects()), topic_ids)

    def states_deleted(self, group_id: str, topic_ids: frozenset[bytes], *, with_group: bool) -> Effects:
        """Log that the share coordinators have deleted the state of these topics. If `with_group` is True, the group is
        deleted, too, and KafkaError NON_EMPTY_GROUP is raised if the group has members or other state.
        """
        effects = Effects()
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return effects
        left = group.state_partitions.without(topic_ids)
        if with_group:
            if group.members or left != StatePartitions():
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
            effects.records += group.tombstones()
        elif left != group.state_partitions:
            effects.append(group.state_record(left))
        return effects

    # --- private helpers of `ShareGroups`

    def _step(self, group: ShareGroup, effects: Effects) -> ShareStep:
        own = self._overrides_of(group.group_id)
        settings: ShareGroupSettings = self._config.share
        return ShareStep(
            group,
            self._groups,
            effects,
            self._config,
            settings.with_own(own) if own else settings,
            self._topics(),
            self._now_ms(),
        )


def find_share_group(group: object, group_id: str) -> ShareGroup:
    """Return `group` if it is a share group. Raises KafkaError GROUP_ID_NOT_FOUND."""
    if not isinstance(group, ShareGroup):
        what = "not found" if group is None else "is not a share group"
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
    return group
