"""The records of the topic `_schemas`, with the keys and values that the Confluent registry uses, so that each registry
can read the other's records.

A key is a JSON object with fields in a fixed order, because the topic is compacted by the bytes of keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from oncelog_registry.schemas import AVRO, Reference, Schema, SubjectVersion

TOPIC: Final = "_schemas"

SCHEMA: Final = "SCHEMA"
CONFIG: Final = "CONFIG"
MODE: Final = "MODE"
DELETE_SUBJECT: Final = "DELETE_SUBJECT"
CLEAR_SUBJECT: Final = "CLEAR_SUBJECT"
NOOP: Final = "NOOP"
"""A key type that the Confluent registry skips, whatever the value is."""


class Record(NamedTuple):
    """One record of the topic `_schemas`. A `value` of None is a tombstone: the subject, version or setting of the key
    was deleted.
    """

    key: bytes
    value: bytes | None


def schema_record(version: SubjectVersion) -> Record:
    value: dict[str, Any] = {
        "subject": version.subject,
        "version": version.version,
        "id": version.id,
        **version.schema.document(),
        "deleted": version.deleted,
    }
    return Record(_schema_key(version.subject, version.version), _dumped(value))


def schema_tombstone(subject: str, version: int) -> Record:
    return Record(_schema_key(subject, version), None)


def config_record(subject: str | None, level: str | None) -> Record:
    """`subject` None means the level of all subjects without their own level. `level` None removes the level."""
    key = {"keytype": CONFIG, "subject": subject, "magic": 0}
    return Record(_dumped(key), None if level is None else _dumped({"compatibilityLevel": level}))


def mode_record(subject: str | None, mode: str | None) -> Record:
    key = {"keytype": MODE, "subject": subject, "magic": 0}
    return Record(_dumped(key), None if mode is None else _dumped({"mode": mode}))


def delete_subject_record(subject: str, last_version: int) -> Record:
    """Return the record which says that all versions of a subject, up to `last_version`, are soft-deleted. The record
    is written in addition to a record for each version, because some registries evaluate only this record.
    """
    key = {"keytype": DELETE_SUBJECT, "subject": subject, "magic": 0}
    return Record(_dumped(key), _dumped({"subject": subject, "version": last_version}))


def highest_numbers_record(schema_id: int, versions: Mapping[str, int]) -> Record:
    """Return the record that keeps the highest assigned id, and the highest assigned version of each subject in
    `versions`. `versions` has the subjects whose remaining records show only lower versions. The record is written
    together with the tombstones of schemas, because compaction removes the deleted schemas, and with them the last
    trace of their ids and versions.
    """
    value = {"highestId": schema_id, "highestVersions": dict(versions)}
    return Record(_dumped({"keytype": NOOP, "magic": 0}), _dumped(value))


def parsed_key(key: bytes) -> dict[str, Any] | None:
    """Return the fields of a key; None if no registry writes such a key."""
    try:
        document = json.loads(key)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and isinstance(document.get("keytype"), str) else None


def parsed_value(value: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def schema_of(document: Mapping[str, Any]) -> Schema:
    """Return the schema in a record's value. Raises KeyError, TypeError or ValueError for an invalid value."""
    references = tuple(
        Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
        for each in document.get("references") or ()
    )
    return Schema(str(document["schema"]), str(document.get("schemaType") or AVRO), references)


def _schema_key(subject: str, version: int) -> bytes:
    return _dumped({"keytype": SCHEMA, "subject": subject, "version": version, "magic": 1})


def _dumped(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
