"""The records in which groups and offsets are stored, and how they are encoded in the log. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple, cast

from oncelog_broker.coordinator.effects import Encoded
from oncelog_broker.coordinator.group import consumer_records, share_records, streams_records
from oncelog_broker.coordinator.group.consumer_records import ConsumerGroupRecord
from oncelog_broker.coordinator.group.share_records import ShareGroupRecord
from oncelog_broker.coordinator.group.streams_records import StreamsGroupRecord
from oncelog_protocol.coordinator_records import consumer_offsets as schema
from oncelog_protocol.coordinator_records.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from oncelog_protocol.coordinator_records.versioned import decode_versioned, encode_versioned, read_version

KEPT_KEYS: Final = 16_384
"""Maximum number of decoded keys in the cache of offset keys, some 5 MB. A log usually has many records with the same
key."""


class OffsetRecord(NamedTuple):
    """The record with a committed offset of a group; a value of None is a tombstone."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


class GroupRecord(NamedTuple):
    """The record with the generation of a classic group; a value of None is the tombstone of the group."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


CoordinatorRecord = OffsetRecord | GroupRecord | ConsumerGroupRecord | ShareGroupRecord | StreamsGroupRecord


def offset_record(group_id: str, topic: str, partition: int, value: OffsetCommitValue | None) -> OffsetRecord:
    return OffsetRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), value)


def group_record(group_id: str, value: GroupMetadataValue | None) -> GroupRecord:
    return GroupRecord(GroupMetadataKey(group=group_id), value)


def encode(record: CoordinatorRecord) -> Encoded:
    """Return the bytes (key and value) of a record. Raises UnencodableMessage for values that the record's schema
    cannot represent.
    """
    if share_records.KINDS.has(record):
        return share_records.KINDS.encode(record)
    if streams_records.KINDS.has(record):
        return streams_records.encode(cast(StreamsGroupRecord, record))
    if not isinstance(record, OffsetRecord | GroupRecord):
        return consumer_records.encode(cast(ConsumerGroupRecord, record))
    value = None if record.value is None else encode_versioned(record.value, _value_version(record.value))
    if isinstance(record, OffsetRecord):
        return Encoded(encode_versioned(record.key, schema.OFFSET_COMMIT_KEY_VERSION), value)
    return Encoded(encode_versioned(record.key, schema.GROUP_METADATA_KEY_VERSION), value)


def _value_version(value: OffsetCommitValue | GroupMetadataValue) -> int:
    if isinstance(value, GroupMetadataValue):
        return schema.GROUP_METADATA_VALUE_VERSION
    if value.expire_timestamp >= 0:
        return schema.OFFSET_COMMIT_VALUE_WITH_EXPIRY_VERSION
    return schema.OFFSET_COMMIT_VALUE_VERSION


def decode(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """Decode a record. Returns None for a kind of record that only a later release knows; such records are ignored, as
    in Kafka. Raises MalformedMessage."""
    kind = read_version(key)
    if kind in schema.OFFSET_COMMIT_KEY_VERSIONS:
        return OffsetRecord(_offset_key(key), None if value is None else decode_versioned(OffsetCommitValue, value))
    if kind == schema.GROUP_METADATA_KEY_VERSION:
        group_key = decode_versioned(GroupMetadataKey, key)
        return GroupRecord(group_key, None if value is None else decode_versioned(GroupMetadataValue, value))
    for kinds in (consumer_records.KINDS, share_records.KINDS, streams_records.KINDS):
        record: CoordinatorRecord | None = kinds.decode(kind, key, value)
        if record is not None:
            return record
    return None


@lru_cache(maxsize=KEPT_KEYS)
def _offset_key(key: bytes) -> OffsetCommitKey:
    """Decode the key of an offset record. The result is cached; treat as read-only."""
    return decode_versioned(OffsetCommitKey, key)
