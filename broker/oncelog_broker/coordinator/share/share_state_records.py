"""The records of `__share_group_state`, and how they are encoded in the log. Pure."""

from __future__ import annotations

from typing import NamedTuple

from oncelog_broker.coordinator.effects import Encoded
from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_protocol.coordinator_records import share_group_state as schema
from oncelog_protocol.coordinator_records.share_group_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from oncelog_protocol.coordinator_records.versioned import decode_versioned, encode_versioned, read_version


class SnapshotRecord(NamedTuple):
    """The record with the entire state of a share partition; a value of None is a tombstone."""

    key: ShareKey
    value: ShareSnapshotValue | None


class UpdateRecord(NamedTuple):
    """The record with a change of the state of a share partition."""

    key: ShareKey
    value: ShareUpdateValue | None


ShareStateRecord = SnapshotRecord | UpdateRecord


def encode(record: ShareStateRecord) -> Encoded:
    """Return the bytes (key and value) of a record. Raises UnencodableMessage for values that the record's schema
    cannot represent.
    """
    fields = record.key._asdict()
    value = None if record.value is None else encode_versioned(record.value, schema.VALUE_VERSION)
    if isinstance(record, SnapshotRecord):
        return Encoded(encode_versioned(ShareSnapshotKey(**fields), schema.SNAPSHOT_KEY), value)
    return Encoded(encode_versioned(ShareUpdateKey(**fields), schema.UPDATE_KEY), value)


def decode(key: bytes, value: bytes | None) -> ShareStateRecord | None:
    """Decode a record; returns None for an unknown kind of a later release. Raises MalformedMessage."""
    kind = read_version(key)
    if kind == schema.SNAPSHOT_KEY:
        snapshot = decode_versioned(ShareSnapshotKey, key)
        return SnapshotRecord(
            ShareKey(snapshot.group_id, snapshot.topic_id, snapshot.partition),
            None if value is None else decode_versioned(ShareSnapshotValue, value),
        )
    if kind == schema.UPDATE_KEY:
        update = decode_versioned(ShareUpdateKey, key)
        return UpdateRecord(
            ShareKey(update.group_id, update.topic_id, update.partition),
            None if value is None else decode_versioned(ShareUpdateValue, value),
        )
    return None
