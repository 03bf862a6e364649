"""The records of share groups (KIP-932): values in memory, versioned bytes in the log. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog_broker.coordinator.group.assignments import Target, target_of
from oncelog_broker.coordinator.group.record_kinds import Kinds, group_kind, member_kind
from oncelog_protocol.coordinator_records import share_groups as schema
from oncelog_protocol.coordinator_records.share_groups import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)


class ShareGroupEpochRecord(NamedTuple):
    """The epoch of a share group; None is the tombstone of the group."""

    group_id: str
    value: ShareGroupMetadataValue | None


class ShareMemberRecord(NamedTuple):
    """The metadata of a member; None is the tombstone of the member."""

    group_id: str
    member_id: str
    value: ShareGroupMemberMetadataValue | None


class ShareTargetEpochRecord(NamedTuple):
    """The group epoch for which the targets were computed, or None."""

    group_id: str
    value: ShareGroupTargetAssignmentMetadataValue | None


class ShareTargetRecord(NamedTuple):
    """The target assignment of a member, or None."""

    group_id: str
    member_id: str
    value: Target | None


class ShareCurrentRecord(NamedTuple):
    """The current assignment of a member with its epoch, or None."""

    group_id: str
    member_id: str
    value: ShareGroupCurrentMemberAssignmentValue | None


class StatePartitionsRecord(NamedTuple):
    """The share partitions that a group has state of, or None."""

    group_id: str
    value: ShareGroupStatePartitionMetadataValue | None


ShareGroupRecord = (
    ShareGroupEpochRecord
    | ShareMemberRecord
    | ShareTargetEpochRecord
    | ShareTargetRecord
    | ShareCurrentRecord
    | StatePartitionsRecord
)


def _target(group_id: str, member_id: str, value: ShareGroupTargetAssignmentMemberValue | None) -> ShareTargetRecord:
    return ShareTargetRecord(group_id, member_id, None if value is None else target_of(value.topic_partitions))


def _target_message(record: ShareTargetRecord) -> ShareGroupTargetAssignmentMemberValue | None:
    if record.value is None:
        return None
    topic = ShareGroupTargetAssignmentMemberValue.TopicPartition
    return ShareGroupTargetAssignmentMemberValue(
        topic_partitions=[
            topic(topic_id=topic_id, partitions=sorted(partitions)) for topic_id, partitions in record.value.items()
        ]
    )


KINDS: Final = Kinds(
    (
        member_kind(schema.MEMBER_KEY, ShareMemberRecord, ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        group_kind(schema.GROUP_EPOCH_KEY, ShareGroupEpochRecord, ShareGroupMetadataKey, ShareGroupMetadataValue),
        group_kind(
            schema.ASSIGNMENT_EPOCH_KEY,
            ShareTargetEpochRecord,
            ShareGroupTargetAssignmentMetadataKey,
            ShareGroupTargetAssignmentMetadataValue,
        ),
        member_kind(
            schema.TARGET_KEY,
            ShareTargetRecord,
            ShareGroupTargetAssignmentMemberKey,
            ShareGroupTargetAssignmentMemberValue,
            _target,
            _target_message,
        ),
        member_kind(
            schema.CURRENT_KEY,
            ShareCurrentRecord,
            ShareGroupCurrentMemberAssignmentKey,
            ShareGroupCurrentMemberAssignmentValue,
        ),
        group_kind(
            schema.STATE_PARTITIONS_KEY,
            StatePartitionsRecord,
            ShareGroupStatePartitionMetadataKey,
            ShareGroupStatePartitionMetadataValue,
        ),
    )
)
