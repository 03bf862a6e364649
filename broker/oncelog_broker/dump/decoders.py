"""Decodes the records of the internal topics to JSON, as Kafka's DumpLogSegments does since 4.0 (S57).

Example of the output: key: {"type":"0","data":{"transactionalId":"t"}} payload:
{"version":"1","data":{"producerId":7,...}}
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from oncelog_broker.coordinator.group import consumer_records, share_records, streams_records
from oncelog_broker.metadata.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from oncelog_protocol.consumer_protocol import (
    CONSUMER_PROTOCOL,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from oncelog_protocol.consumer_protocol import decode_versioned as decode_consumer_protocol
from oncelog_protocol.coordinator_records.consumer_offsets import (
    GROUP_METADATA_KEY_VERSION,
    OFFSET_COMMIT_KEY_VERSIONS,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from oncelog_protocol.coordinator_records.share_group_state import (
    SNAPSHOT_KEY,
    UPDATE_KEY,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from oncelog_protocol.coordinator_records.transaction_state import (
    TRANSACTION_LOG_KEY_VERSION,
    TransactionLogKey,
    TransactionLogValue,
)
from oncelog_protocol.coordinator_records.versioned import decode_versioned, read_version
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.records.record import Record
from oncelog_protocol.schema import fields_of, schema_of
from oncelog_protocol.uuids import uuid_to_string

Json = dict[str, Any]

PARTITION_DIRECTORY: Final = re.compile(r"(.+)-\d+(\.[0-9a-f]+-(delete|stray|future))?")
DELETED: Final = "<DELETE>"
"""The printed payload of a tombstone."""

OFFSETS_KINDS: Final = {
    **dict.fromkeys(OFFSET_COMMIT_KEY_VERSIONS, (OffsetCommitKey, OffsetCommitValue)),
    GROUP_METADATA_KEY_VERSION: (GroupMetadataKey, GroupMetadataValue),
    **consumer_records.KINDS.messages,
    **share_records.KINDS.messages,
    **streams_records.KINDS.messages,
}
SHARE_GROUP_STATE_KINDS: Final = {
    SNAPSHOT_KEY: (ShareSnapshotKey, ShareSnapshotValue),
    UPDATE_KEY: (ShareUpdateKey, ShareUpdateValue),
}
TRANSACTION_LOG_KINDS: Final = {TRANSACTION_LOG_KEY_VERSION: (TransactionLogKey, TransactionLogValue)}


class Decoder(Enum):
    """The decoder for the log of an internal topic; the value of each member is the topic name."""

    OFFSETS = CONSUMER_OFFSETS
    TRANSACTION_LOG = TRANSACTION_STATE
    SHARE_GROUP_STATE = SHARE_GROUP_STATE

    @property
    def kinds(self) -> Mapping[int, tuple[type, type]]:
        """Maps the version in a record's key to the message classes of key and value."""
        return KINDS[self]


KINDS: Final[Mapping[Decoder, Mapping[int, tuple[type, type]]]] = {
    Decoder.OFFSETS: OFFSETS_KINDS,
    Decoder.TRANSACTION_LOG: TRANSACTION_LOG_KINDS,
    Decoder.SHARE_GROUP_STATE: SHARE_GROUP_STATE_KINDS,
}


def decoder_of(path: Path) -> Decoder | None:
    """Return the decoder for a log file; the name of the file's directory determines the topic. Returns None if the
    topic is not internal.
    """
    match = PARTITION_DIRECTORY.fullmatch(path.absolute().parent.name)
    return None if match is None else next((each for each in Decoder if each.value == match[1]), None)


def decoded(decoder: Decoder, record: Record) -> dict[str, Json | str]:
    """Return the values of the printed fields `key:` and `payload:`. Raises MalformedMessage."""
    if record.key is None:
        raise MalformedMessage("the record has no key")
    kind = read_version(record.key)
    if kind not in decoder.kinds:
        return {"key": f"Unknown record type {kind} at offset {record.offset}, skipping."}
    key_class, value_class = decoder.kinds[kind]
    key = {"type": str(kind), "data": message_json(decode_versioned(key_class, record.key), kind)}
    if record.value is None:
        return {"key": key, "payload": DELETED}
    version = read_version(record.value)
    value: object = decode_versioned(value_class, record.value)
    data = message_json(value, version)
    if isinstance(value, GroupMetadataValue) and value.protocol_type == CONSUMER_PROTOCOL:
        for shown, member in zip(data["members"], value.members, strict=True):
            shown["subscription"] = _consumer_protocol_json(ConsumerProtocolSubscription, member.subscription)
            shown["assignment"] = _consumer_protocol_json(ConsumerProtocolAssignment, member.assignment)
    return {"key": key, "payload": {"version": str(version), "data": data}}


def message_json(message: Any, version: int) -> Json:
    """Convert a message or a nested struct to the JSON of Kafka's JSON converters: bytes become base64, ids of topics
    their usual text, and tagged fields with their default value are omitted.
    """
    return {
        _camel_case(field.name): uuid_to_string(value) if field.type_name == "uuid" else _value_json(value, version)
        for field in fields_of(type(message))
        if version in field.versions
        and ((value := getattr(message, field.name)) != field.default or version not in field.tagged)
    }


def _value_json(value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_value_json(each, version) for each in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return value if value is None or isinstance(value, (bool, int, str)) else message_json(value, version)


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _consumer_protocol_json(cls: type, raw: bytes) -> Any:
    """Return the consumer protocol message of a member as JSON; bytes that cannot be decoded are returned as base64."""
    try:
        version = min(read_version(raw), schema_of(cls).versions.high)
        return message_json(decode_consumer_protocol(cls, raw), version)
    except MalformedMessage:
        return _value_json(raw, 0)
