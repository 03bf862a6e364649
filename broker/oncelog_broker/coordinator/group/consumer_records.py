"""The records of groups of the consumer protocol (KIP-848): values in memory, versioned bytes in the log. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from oncelog_broker.coordinator.effects import Encoded
from oncelog_broker.coordinator.group.assignments import Target, target_of, target_value
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
from oncelog_protocol.coordinator_records.versioned import decode_versioned, encode_versioned


class GroupEpochRecord(NamedTuple):
    """The epoch of a group; None is the tombstone of the group."""

    group_id: str
    value: ConsumerGroupMetadataValue | None


class OldTopicsRecord(NamedTuple):
    """The topics of a group as a broker before Kafka 4.1 kept them, or None."""

    group_id: str
    value: ConsumerGroupPartitionMetadataValue | None


class MemberRecord(NamedTuple):
    """The subscription of a member; None is the tombstone of the member."""

    group_id: str
    member_id: str
    value: ConsumerGroupMemberMetadataValue | None


class TargetEpochRecord(NamedTuple):
    """The epoch of a group's target assignment, or None."""

    group_id: str
    value: ConsumerGroupTargetAssignmentMetadataValue | None


class TargetRecord(NamedTuple):
    """The target assignment of a member, or None. `encoded`: its bytes, where they were made ahead of the step that
    logs it."""

    group_id: str
    member_id: str
    value: Target | None
    encoded: Encoded | None = None


class CurrentRecord(NamedTuple):
    """The current assignment of a member with its epoch, or None."""

    group_id: str
    member_id: str
    value: ConsumerGroupCurrentMemberAssignmentValue | None


class RegexRecord(NamedTuple):
    """The topics of a regular expression; None: no member uses it any more."""

    group_id: str
    regex: str
    value: ConsumerGroupRegularExpressionValue | None


ConsumerGroupRecord = (
    GroupEpochRecord | OldTopicsRecord | MemberRecord | TargetEpochRecord | TargetRecord | CurrentRecord | RegexRecord
)


class _Kind(NamedTuple):
    """One kind of record: the version of its key, the message types of key and value, and the function that builds a
    record from them."""

    number: int
    key: type[Any]
    value: type[Any]
    made: Callable[[Any, Any], ConsumerGroupRecord]
    key_of: Callable[[Any], Any]


def _group_kind(number: int, key: type[Any], value: type[Any], made: Callable[[str, Any], Any]) -> _Kind:
    return _Kind(number, key, value, lambda k, v: made(k.group_id, v), lambda record: key(group_id=record.group_id))


def _member_kind(number: int, key: type[Any], value: type[Any], made: Callable[[str, str, Any], Any]) -> _Kind:
    return _Kind(
        number,
        key,
        value,
        lambda k, v: made(k.group_id, k.member_id, v),
        lambda record: key(group_id=record.group_id, member_id=record.member_id),
    )


def _target(group_id: str, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None) -> TargetRecord:
    return TargetRecord(group_id, member_id, None if value is None else target_of(value.topic_partitions))


_KINDS: Final[Mapping[type[Any], _Kind]] = {
    GroupEpochRecord: _group_kind(
        schema.GROUP_EPOCH_KEY, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, GroupEpochRecord
    ),
    OldTopicsRecord: _group_kind(
        schema.PARTITION_METADATA_KEY,
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupPartitionMetadataValue,
        OldTopicsRecord,
    ),
    MemberRecord: _member_kind(
        schema.MEMBER_KEY, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, MemberRecord
    ),
    TargetEpochRecord: _group_kind(
        schema.ASSIGNMENT_EPOCH_KEY,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMetadataValue,
        TargetEpochRecord,
    ),
    TargetRecord: _member_kind(
        schema.TARGET_KEY, ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, _target
    ),
    CurrentRecord: _member_kind(
        schema.CURRENT_KEY,
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupCurrentMemberAssignmentValue,
        CurrentRecord,
    ),
    RegexRecord: _Kind(
        schema.REGEX_KEY,
        ConsumerGroupRegularExpressionKey,
        ConsumerGroupRegularExpressionValue,
        lambda key, value: RegexRecord(key.group_id, key.regular_expression, value),
        lambda record: ConsumerGroupRegularExpressionKey(group_id=record.group_id, regular_expression=record.regex),
    ),
}
_BY_NUMBER: Final[Mapping[int, _Kind]] = {kind.number: kind for kind in _KINDS.values()}


def encode(record: ConsumerGroupRecord) -> Encoded:
    """The bytes of a record. Raises UnencodableMessage for values that do not fit."""
    value: Any = record.value
    if isinstance(record, TargetRecord):
        if record.encoded is not None:
            return record.encoded
        value = None if record.value is None else target_value(record.value)
    kind = _KINDS[type(record)]
    return Encoded(
        encode_versioned(kind.key_of(record), kind.number),
        None if value is None else encode_versioned(value, schema.VALUE_VERSION),
    )


def decode(number: int, key: bytes, value: bytes | None) -> ConsumerGroupRecord | None:
    """The record for a key of this kind; None if the key is not one of a consumer group. Raises MalformedMessage, also
    for a version of a value that we do not know: to guess would lose the group."""
    kind = _BY_NUMBER.get(number)
    if kind is None:
        return None
    return kind.made(decode_versioned(kind.key, key), None if value is None else decode_versioned(kind.value, value))
