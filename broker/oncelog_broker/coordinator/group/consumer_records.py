"""The records of groups of the consumer protocol (KIP-848), and how they are encoded in the log. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog_broker.coordinator.effects import Encoded
from oncelog_broker.coordinator.group.assignments import Target, target_of, target_value
from oncelog_broker.coordinator.group.record_kinds import Kind, Kinds, group_kind, member_kind
from oncelog_protocol.coordinator_records import consumer_groups as schema
from oncelog_protocol.coordinator_records.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)


class GroupEpochRecord(NamedTuple):
    """The record with the epoch of a group; a value of None is the tombstone of the group."""

    group_id: str
    value: ConsumerGroupMetadataValue | None


class OldTopicsRecord(NamedTuple):
    """The record with the subscribed topics of a group, written by Kafka before 4.1; a value of None is a tombstone."""

    group_id: str
    value: ConsumerGroupPartitionMetadataValue | None


class MemberRecord(NamedTuple):
    """The record with the subscription of a member; a value of None is the tombstone of the member."""

    group_id: str
    member_id: str
    value: ConsumerGroupMemberMetadataValue | None


class TargetEpochRecord(NamedTuple):
    """The record with the epoch of a group's target assignment; a value of None is a tombstone."""

    group_id: str
    value: ConsumerGroupTargetAssignmentMetadataValue | None


class TargetRecord(NamedTuple):
    """The record with the target assignment of a member; a value of None is a tombstone. `encoded`: the bytes of the
    record, if a background job has already encoded them; otherwise None.
    """

    group_id: str
    member_id: str
    value: Target | None
    encoded: Encoded | None = None


class CurrentRecord(NamedTuple):
    """The record with the current assignment and the epoch of a member; a value of None is a tombstone."""

    group_id: str
    member_id: str
    value: ConsumerGroupCurrentMemberAssignmentValue | None


class RegexRecord(NamedTuple):
    """The record with the topics that a regular expression matches; a value of None is a tombstone, because no member
    uses the expression any more."""

    group_id: str
    regex: str
    value: ConsumerGroupRegularExpressionValue | None


ConsumerGroupRecord = (
    GroupEpochRecord | OldTopicsRecord | MemberRecord | TargetEpochRecord | TargetRecord | CurrentRecord | RegexRecord
)


def _target(group_id: str, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None) -> TargetRecord:
    return TargetRecord(group_id, member_id, None if value is None else target_of(value.topic_partitions))


def _target_message(record: TargetRecord) -> ConsumerGroupTargetAssignmentMemberValue | None:
    return None if record.value is None else target_value(record.value)


KINDS: Final = Kinds(
    (
        group_kind(schema.GROUP_EPOCH_KEY, GroupEpochRecord, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        group_kind(
            schema.PARTITION_METADATA_KEY,
            OldTopicsRecord,
            ConsumerGroupPartitionMetadataKey,
            ConsumerGroupPartitionMetadataValue,
        ),
        member_kind(schema.MEMBER_KEY, MemberRecord, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        group_kind(
            schema.ASSIGNMENT_EPOCH_KEY,
            TargetEpochRecord,
            ConsumerGroupTargetAssignmentMetadataKey,
            ConsumerGroupTargetAssignmentMetadataValue,
        ),
        member_kind(
            schema.TARGET_KEY,
            TargetRecord,
            ConsumerGroupTargetAssignmentMemberKey,
            ConsumerGroupTargetAssignmentMemberValue,
            _target,
            _target_message,
        ),
        member_kind(
            schema.CURRENT_KEY,
            CurrentRecord,
            ConsumerGroupCurrentMemberAssignmentKey,
            ConsumerGroupCurrentMemberAssignmentValue,
        ),
        Kind(
            schema.REGEX_KEY,
            RegexRecord,
            ConsumerGroupRegularExpressionKey,
            ConsumerGroupRegularExpressionValue,
            lambda key, value: RegexRecord(key.group_id, key.regular_expression, value),
            lambda record: ConsumerGroupRegularExpressionKey(group_id=record.group_id, regular_expression=record.regex),
        ),
    )
)


def encode(record: ConsumerGroupRecord) -> Encoded:
    """Return the bytes of a record. Raises UnencodableMessage for values that the record's schema cannot represent."""
    if isinstance(record, TargetRecord) and record.encoded is not None:
        return record.encoded
    return KINDS.encode(record)
