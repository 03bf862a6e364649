"""The records of share groups (KIP-932), and how they are encoded in the log. Pure."""

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
    """The record with the epoch of a share group; a value of None is the tombstone of the group."""

    group_id: str
    value: ShareGroupMetadataValue | None


class ShareMemberRecord(NamedTuple):
    """The record with the metadata of a member; a value of None is the tombstone of the member."""

    group_id: str
    member_id: str
    value: ShareGroupMemberMetadataValue | None


class ShareTargetEpochRecord(NamedTuple):
    """The record with the group epoch for which the target assignments were computed; a value of None is a
    tombstone."""

    group_id: str
    value: ShareGroupTargetAssignmentMetadataValue | None


class ShareTargetRecord(NamedTuple):
    """The record with the target assignment of a member; a value of None is a tombstone."""

    group_id: str
    member_id: str
    value: Target | None


class ShareCurrentRecord(NamedTuple):
    """The record with the current assignment and the epoch of a member; a value of None is a tombstone."""

    group_id: str
    member_id: str
    value: ShareGroupCurrentMemberAssignmentValue | None


class StatePartitionsRecord(NamedTuple):
    """The record that lists the share partitions whose state a group has initialized or is changing; a value of None is
    a tombstone."""

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
