"""The state that results from the records of `_schemas`, in the order of the topic. No I/O.

Ids are unique in the entire registry: schemas with equal fingerprints share one id. An id is never assigned to another
schema, not even after its schema was deleted permanently, because records with the id may still exist. A version number
is never assigned twice, not even after its record was deleted permanently and compacted away.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, Final

from oncelog_registry import records
from oncelog_registry.errors import schema_not_found, subject_not_found, version_not_found
from oncelog_registry.formats import fingerprint
from oncelog_registry.schemas import Schema, SubjectVersion

logger = logging.getLogger(__name__)

DEFAULT_LEVEL: Final = "BACKWARD"
DEFAULT_MODE: Final = "READWRITE"
LATEST: Final = "latest"


class State:
    """The subjects with their versions, the compatibility levels and the modes. Only `apply` changes this state."""

    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, SubjectVersion]] = {}
        self._by_id: dict[int, SubjectVersion] = {}
        """For each id, one version whose schema has the id; the version may be deleted."""
        self._id_of: dict[str, int] = {}
        """Maps the fingerprint of a schema (equal for schemas with the same meaning) to the schema's id."""
        self._highest_id = 0
        self._highest_versions: dict[str, int] = {}
        self._levels: dict[str | None, str] = {}
        self._modes: dict[str | None, str] = {}

    # --- queries

    def subjects(self, prefix: str = "", *, deleted: bool = False, only_deleted: bool = False) -> list[str]:
        """Return the names of subjects that have a version, sorted. `deleted`: include subjects that have only
        soft-deleted versions.
        """
        return sorted(
            name
            for name, versions in self._subjects.items()
            if name.startswith(prefix) and any(_is_wanted(each, deleted, only_deleted) for each in versions.values())
        )

    def versions(self, subject: str, *, deleted: bool = False, only_deleted: bool = False) -> list[SubjectVersion]:
        """Return the versions of a subject in ascending order; empty if the subject is unknown."""
        known = self._subjects.get(subject, {})
        return [known[number] for number in sorted(known) if _is_wanted(known[number], deleted, only_deleted)]

    def version(self, subject: str, version: int | str, *, deleted: bool = False) -> SubjectVersion:
        """Return one version of a subject, by number or `latest`. Raises RegistryError 40401 or 40402."""
        found = self.versions(subject, deleted=deleted)
        if not found:
            raise subject_not_found(subject)
        if version == LATEST:
            return found[-1]
        for each in found:
            if each.version == version:
                return each
        raise version_not_found(version)

    def with_id(self, schema_id: int) -> SubjectVersion:
        """Return a version with this id, even a deleted version, because old records still need it. Raises
        RegistryError 40403.
        """
        if schema_id not in self._by_id:
            raise schema_not_found(schema_id)
        return self._by_id[schema_id]

    def uses_of_id(self, schema_id: int, *, deleted: bool = False) -> list[SubjectVersion]:
        """Return all versions that have this id, sorted by subject and version."""
        return [each for each in self.all_versions(deleted=deleted) if each.id == schema_id]

    def all_versions(self, *, deleted: bool = False) -> Iterator[SubjectVersion]:
        for subject in sorted(self._subjects):
            yield from self.versions(subject, deleted=deleted)

    def same_schema(self, subject: str, print_of: str, *, deleted: bool = False) -> SubjectVersion | None:
        """Return the newest version of a subject with this fingerprint; None if there is none."""
        same = [each for each in self.versions(subject, deleted=deleted) if each.fingerprint == print_of]
        return same[-1] if same else None

    def referring_ids(self, subject: str, version: int, *, deleted: bool = False) -> list[int]:
        """Return the ids of the schemas that refer to a version, in ascending order. `deleted`: include soft-deleted
        schemas.
        """
        return sorted(
            {
                each.id
                for each in self.all_versions(deleted=deleted)
                if any((ref.subject, ref.version) == (subject, version) for ref in each.schema.references)
            }
        )

    def id_for(self, print_of: str) -> int:
        """Return the id for schemas with this fingerprint: their existing id, or the next free one."""
        return self._id_of.get(print_of, self._highest_id + 1)

    @property
    def highest_id(self) -> int:
        """The highest id that was ever assigned; 0 if none was."""
        return self._highest_id

    def id_is_of(self, schema_id: int) -> str | None:
        """Return the fingerprint of the schema with this id; None if the id is free."""
        found = self._by_id.get(schema_id)
        return None if found is None else found.fingerprint

    def next_version(self, subject: str) -> int:
        return self._highest_versions.get(subject, 0) + 1

    def untold_highest_versions(self, subject: str, gone: Collection[int]) -> dict[str, int]:
        """Return the highest version that was ever assigned, by subject, for the case that the records of the versions
        `gone` of `subject` are removed. The result has only those subjects that then still have records, but no record
        of their highest version.
        """
        found = {}
        for name, highest in self._highest_versions.items():
            told = set(self._subjects.get(name, ())).difference(gone if name == subject else ())
            if told and max(told) < highest:
                found[name] = highest
        return found

    # --- levels and modes

    def level(self, subject: str | None) -> str | None:
        """Return the level that was set for a subject, or for all subjects if `subject` is None; None if no level was
        set.
        """
        return self._levels.get(subject)

    def effective_level(self, subject: str | None) -> str:
        return self._levels.get(subject) or self._levels.get(None) or DEFAULT_LEVEL

    def mode(self, subject: str | None) -> str | None:
        return self._modes.get(subject)

    def effective_mode(self, subject: str | None) -> str:
        return self._modes.get(subject) or self._modes.get(None) or DEFAULT_MODE

    # --- records

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record of the topic to the state. An unknown record is logged and skipped."""
        fields = None if key is None else records.parsed_key(key)
        if fields is None:
            logger.warning("a record of %s has a key that is none of a schema registry", records.TOPIC)
            return
        content = None if value is None else records.parsed_value(value)
        try:
            self._apply(fields, content, is_tombstone=value is None)
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            logger.warning("a record of %s cannot be used: %s: %r", records.TOPIC, fields, error)

    def _apply(self, fields: dict[str, Any], content: dict[str, Any] | None, *, is_tombstone: bool) -> None:
        kind, subject = fields["keytype"], fields.get("subject")
        if kind == records.NOOP:
            self._highest_id = max(self._highest_id, int((content or {}).get("highestId", 0)))
            for name, number in dict((content or {}).get("highestVersions", {})).items():
                self._note_version(str(name), int(number))
        elif kind == records.SCHEMA:
            number = int(fields["version"])
            if is_tombstone:
                self._forget(str(subject), number)
            elif content is not None:
                self._put(_version_of(str(subject), number, content))
        elif kind == records.CONFIG:
            _set(self._levels, subject, None if content is None else content.get("compatibilityLevel"))
        elif kind == records.MODE:
            _set(self._modes, subject, None if content is None else content.get("mode"))
        elif kind == records.DELETE_SUBJECT and content is not None:
            self._delete_up_to(str(subject), int(content["version"]))
        elif kind == records.CLEAR_SUBJECT and content is not None:
            for number in tuple(self._subjects.get(str(subject), ())):
                self._forget(str(subject), number)

    def _put(self, version: SubjectVersion) -> None:
        self._subjects.setdefault(version.subject, {})[version.version] = version
        self._by_id[version.id] = version
        self._id_of.setdefault(version.fingerprint, version.id)
        self._highest_id = max(self._highest_id, version.id)
        self._note_version(version.subject, version.version)

    def _note_version(self, subject: str, number: int) -> None:
        self._highest_versions[subject] = max(self._highest_versions.get(subject, 0), number)

    def _delete_up_to(self, subject: str, last: int) -> None:
        for number, version in self._subjects.get(subject, {}).items():
            if number <= last and not version.deleted:
                self._subjects[subject][number] = replace(version, deleted=True)
        self._note_version(subject, last)

    def _forget(self, subject: str, number: int) -> None:
        versions = self._subjects.get(subject, {})
        gone = versions.pop(number, None)
        if not versions:
            self._subjects.pop(subject, None)
        if gone is None:
            return
        self._note_version(subject, number)
        others = self.uses_of_id(gone.id, deleted=True)
        if others:
            self._by_id[gone.id] = others[0]
        else:
            self._by_id.pop(gone.id, None)
            self._id_of.pop(gone.fingerprint, None)


def _version_of(subject: str, number: int, content: dict[str, Any]) -> SubjectVersion:
    schema: Schema = records.schema_of(content)
    deleted = bool(content.get("deleted", False))
    return SubjectVersion(subject, number, int(content["id"]), schema, fingerprint(schema), deleted)


def _set(values: dict[str | None, str], subject: str | None, value: object) -> None:
    if value is None:
        values.pop(subject, None)
    else:
        values[subject] = str(value)


def _is_wanted(version: SubjectVersion, deleted: bool, only_deleted: bool) -> bool:
    if only_deleted:
        return version.deleted
    return deleted or not version.deleted
