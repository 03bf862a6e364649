"""One share group: its members, epochs, targets, and the share partitions with initialized state. Pure.

The epochs are the same as in the consumer protocol (`consumer_group`). The group epoch rises when a property changes on
which the assignment depends. The assignment epoch is the group epoch for which the target was computed. The member
epoch is the assignment epoch to which the member was reconciled. A member gets its target immediately: partitions are
shared, so a member need not wait for other members.

The fields contain the logged state, which only `replay` changes. Invariant: `held_bytes` is the metadata bytes of all
members. `held`, the broker's total for all groups, includes these bytes until `let_go` is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from oncelog_broker.coordinator.group.assignments import NO_TARGET, Target
from oncelog_broker.coordinator.group.held_bytes import HeldBytes
from oncelog_broker.coordinator.group.share.share_member import LEAVING_EPOCH, ShareMember
from oncelog_broker.coordinator.group.share.state_partitions import StatePartitions
from oncelog_broker.coordinator.group.share_records import (
    ShareCurrentRecord,
    ShareGroupEpochRecord,
    ShareGroupRecord,
    ShareMemberRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    StatePartitionsRecord,
)
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_protocol.coordinator_records.share_groups import (
    ShareGroupMetadataValue,
    ShareGroupTargetAssignmentMetadataValue,
)

SHARE_PROTOCOL: Final = "share"
FIRST_EPOCH: Final = 1
"""The group epoch and assignment epoch of a group that was never logged. The first member raises the group epoch to 2,
as in Kafka 4.3."""


class ShareGroupState(Enum):
    """The state of a share group; the value is the name in the protocol."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


class ShareGroup:
    """A share group with its logged state. `checked_topics` is the view of the cluster's topics (TopicView) whose hash
    the group last compared with its own metadata hash; None after loading. `asked_at_ms` is the wall time of the last
    request to initialize share partitions, in ms; 0 after loading."""

    __slots__ = (
        "asked_at_ms",
        "assigned_at_ms",
        "assignment_epoch",
        "checked_topics",
        "epoch",
        "group_id",
        "held",
        "held_bytes",
        "members",
        "metadata_hash",
        "state_partitions",
        "targets",
    )

    def __init__(self, group_id: str, held: HeldBytes | None = None) -> None:
        self.group_id = group_id
        self.held = held or HeldBytes()
        self.held_bytes = 0
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0
        """Wall time of the last assignment, in ms; 0 if it is not known."""
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Target] = {}
        self.state_partitions = StatePartitions()
        self.checked_topics: TopicView | None = None
        self.asked_at_ms = 0

    # --- methods that derive values from the logged state -------------------------------------------------------------

    protocol_type: Final = SHARE_PROTOCOL
    kind: Final = "share"

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def target_of(self, member_id: str) -> Target:
        return self.targets.get(member_id, NO_TARGET)

    def topics(self) -> frozenset[str]:
        """Return the names of all topics that members read."""
        return topics_of(self.members)

    # --- methods for the records of the group in the log --------------------------------------------------------------

    def epoch_record(self, epoch: int, metadata_hash: int) -> ShareGroupEpochRecord:
        value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        return ShareGroupEpochRecord(self.group_id, value)

    def target_epoch_record(self, epoch: int, now_ms: int) -> ShareTargetEpochRecord:
        value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
        return ShareTargetEpochRecord(self.group_id, value)

    def state_record(self, partitions: StatePartitions) -> StatePartitionsRecord:
        return StatePartitionsRecord(self.group_id, partitions.to_value())

    def tombstones_of(self, member_id: str) -> list[ShareGroupRecord]:
        """Return the tombstones that delete a member, in the order that Kafka's brokers expect."""
        return [
            ShareCurrentRecord(self.group_id, member_id, None),
            ShareTargetRecord(self.group_id, member_id, None),
            ShareMemberRecord(self.group_id, member_id, None),
        ]

    def tombstones(self) -> list[ShareGroupRecord]:
        """Return the tombstones that delete a group without members."""
        records: list[ShareGroupRecord] = [ShareTargetRecord(self.group_id, member, None) for member in self.targets]
        records += [
            ShareTargetEpochRecord(self.group_id, None),
            StatePartitionsRecord(self.group_id, None),
            ShareGroupEpochRecord(self.group_id, None),
        ]
        return records

    def replay(self, record: ShareGroupRecord) -> None:
        """Apply a logged record, except the tombstone of the group itself. The records of one group may be replayed in
        any order: compaction and loading skip records that later records with the same key replace, so some records of
        a batch may be missing."""
        if isinstance(record, ShareCurrentRecord):
            member = self.members.get(record.member_id) or ShareMember(record.member_id)
            if record.value is not None:
                self._put(member.with_current(record.value))
            elif record.member_id in self.members:
                self._put(member._replace(epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH, assigned=NO_TARGET))
        elif isinstance(record, ShareTargetRecord):
            if record.value is None:
                self.targets.pop(record.member_id, None)
            else:
                self.targets[record.member_id] = record.value
        elif isinstance(record, ShareMemberRecord):
            if record.value is not None:
                member = self.members.get(record.member_id) or ShareMember(record.member_id)
                self._put(member.with_metadata(record.value))
            elif record.member_id in self.members:
                self._hold(-self.members.pop(record.member_id).held_bytes)
        elif isinstance(record, ShareGroupEpochRecord):
            assert record.value is not None, "the machine takes the group away"
            self.epoch, self.metadata_hash = record.value.epoch, record.value.metadata_hash
        elif isinstance(record, ShareTargetEpochRecord):
            value = record.value
            self.assignment_epoch = -1 if value is None else value.assignment_epoch
            self.assigned_at_ms = 0 if value is None else value.assignment_timestamp
        else:
            self.state_partitions = StatePartitions.of(record.value)
            self.checked_topics = None  # the next heartbeat must check which share partitions can be assigned

    def let_go(self) -> None:
        """Subtract the metadata of all members from `held` (the broker's total for all groups), because the group is
        being deleted.
        """
        self._hold(-self.held_bytes)

    # --- private helpers of `ShareGroup` ------------------------------------------------------------------------------

    def _put(self, member: ShareMember) -> None:
        before = self.members.get(member.member_id)
        if before is None or before.said != member.said:
            self._hold(member.held_bytes - (0 if before is None else before.held_bytes))
        self.members[member.member_id] = member

    def _hold(self, more: int) -> None:
        self.held_bytes += more
        self.held.bytes += more


def topics_of(members: Mapping[str, ShareMember]) -> frozenset[str]:
    """Return the names of all topics that these members read."""
    return frozenset().union(*{member.topics for member in members.values()})
