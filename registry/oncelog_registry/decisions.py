"""Decides which records a change writes to the topic, from the state alone. No I/O.

Each function returns the records to write (no records if nothing changes) and the response; or raises a RegistryError.
A function may be called again with a newer state, if another registry has written in between.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final, NamedTuple

from oncelog_registry import errors
from oncelog_registry.records import (
    Record,
    config_record,
    delete_subject_record,
    highest_numbers_record,
    mode_record,
    schema_record,
    schema_tombstone,
)
from oncelog_registry.schemas import Schema, SubjectVersion
from oncelog_registry.state import LATEST, State

LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
MODES: Final = ("READWRITE", "READONLY", "IMPORT")
MAX_ID: Final = 2**31 - 1


class Registered(NamedTuple):
    """The decision about a registration: the response for the client, and the records to write to the topic."""

    version: SubjectVersion
    records: tuple[Record, ...] = ()


class Deleted(NamedTuple):
    """The decision about a deletion: the version numbers of the deleted versions, which the response lists, and the
    records to write to the topic.
    """

    versions: list[int]
    records: tuple[Record, ...] = ()


def register(
    state: State, subject: str, schema: Schema, print_of: str, wanted_id: int | None, wanted_version: int | None
) -> Registered:
    """Register a schema: assign an id and a version, or return the existing ones if the subject already has the schema.

    The caller has checked that the schema is compatible with the versions in `state`. `wanted_id`, `wanted_version`:
    for a subject in mode IMPORT; None means the next id or version.
    """
    mode = state.effective_mode(subject)
    same = state.same_schema(subject, print_of)
    if same is not None and wanted_id in (None, same.id) and wanted_version in (None, same.version):
        return Registered(same)
    if mode == "READONLY":
        raise errors.not_permitted(f"Subject {subject} is in read-only mode")
    if mode == "IMPORT":
        return _imported(state, subject, schema, print_of, wanted_id, wanted_version)
    if wanted_id is not None:
        raise errors.not_permitted(
            f"Subject {subject} is not in import mode: a schema is registered there without an id"
        )
    number, schema_id = state.next_version(subject), state.id_for(print_of)
    if max(number, schema_id) > MAX_ID:
        raise errors.not_permitted(
            f"No id or version above {MAX_ID} can be given to a schema: an import has given the highest one. Use "
            "another topic (--topic)"
        )
    return _written(SubjectVersion(subject, number, schema_id, schema, print_of))


def _imported(
    state: State, subject: str, schema: Schema, print_of: str, wanted_id: int | None, wanted_version: int | None
) -> Registered:
    if wanted_id is None:
        raise errors.unprocessable(f"Subject {subject} is in import mode: a schema is registered there with its id")
    if not 0 < wanted_id <= MAX_ID:
        raise errors.unprocessable(f"The id {wanted_id} is not between 1 and {MAX_ID}")
    holder = state.id_is_of(wanted_id)
    if holder is not None and holder != print_of:
        raise errors.not_permitted(f"Overwrite new schema with id {wanted_id} is not permitted: another schema has it")
    number = wanted_version or state.next_version(subject)
    if not 0 < number <= MAX_ID:
        raise errors.invalid_version(str(number))
    if any(each.version == number for each in state.versions(subject, deleted=True)):
        raise errors.not_permitted(f"Version {number} of subject {subject} is taken by another schema")
    return _written(SubjectVersion(subject, number, wanted_id, schema, print_of))


def _written(version: SubjectVersion) -> Registered:
    return Registered(version, (schema_record(version),))


def delete_version(state: State, subject: str, version: int | str, *, permanent: bool) -> Deleted:
    """Delete one version: the first deletion is soft; deleting the version again is permanent."""
    _require_writable(state, subject)
    if not state.versions(subject, deleted=True):
        raise errors.subject_not_found(subject)
    found = state.version(subject, version, deleted=permanent and version != LATEST)
    _require_unreferenced(state, found, permanent=permanent)
    if not permanent:
        return Deleted([found.version], (schema_record(replace(found, deleted=True)),))
    if not found.deleted:
        raise errors.version_not_soft_deleted(subject, found.version)
    return Deleted(
        [found.version], (*_told_before(state, subject, [found.version]), schema_tombstone(subject, found.version))
    )


def delete_subject(state: State, subject: str, *, permanent: bool) -> Deleted:
    """Delete all versions of a subject: the first deletion is soft; deleting the subject again is permanent, and also
    removes the subject's level and mode.
    """
    _require_writable(state, subject)
    every, live = state.versions(subject, deleted=True), state.versions(subject)
    if not every:
        raise errors.subject_not_found(subject)
    if permanent and live:
        raise errors.subject_not_soft_deleted(subject)
    if not permanent and not live:
        raise errors.subject_soft_deleted(subject)
    chosen = every if permanent else live
    for each in chosen:
        _require_unreferenced(state, each, permanent=permanent)
    numbers = [each.version for each in chosen]
    if not permanent:
        marked = [schema_record(replace(each, deleted=True)) for each in chosen]
        return Deleted(numbers, (*marked, delete_subject_record(subject, numbers[-1])))
    gone = [schema_tombstone(subject, number) for number in numbers]
    settings = [config_record(subject, None)] if state.level(subject) else []
    settings += [mode_record(subject, None)] if state.mode(subject) else []
    return Deleted(numbers, (*_told_before(state, subject, numbers), *gone, *settings))


def _told_before(state: State, subject: str, gone: Collection[int]) -> tuple[Record, ...]:
    """Return the records to write before the tombstones of versions, so that no id and no version number is assigned
    twice. If the subject has no version left, one of the records says that all versions up to the highest are deleted.
    """
    highest = highest_numbers_record(state.highest_id, state.untold_highest_versions(subject, gone))
    if {each.version for each in state.versions(subject, deleted=True)}.issubset(gone):
        return highest, delete_subject_record(subject, state.next_version(subject) - 1)
    return (highest,)


def set_level(subject: str | None, level: object) -> tuple[str, tuple[Record, ...]]:
    """Set a compatibility level: return the level as the REST interface spells it, and the records to write to the
    topic.
    """
    wanted = level.upper() if isinstance(level, str) else None
    if wanted not in LEVELS:
        raise errors.invalid_level(level)
    return wanted, (config_record(subject, wanted),)


def remove_level(state: State, subject: str | None) -> tuple[str, tuple[Record, ...]]:
    """Remove the compatibility level of a subject: return the removed level, and the records to write to the topic."""
    had = state.level(subject)
    if had is None:
        if subject is not None:
            raise errors.level_not_configured(subject)
        return state.effective_level(None), ()
    return had, (config_record(subject, None),)


def set_mode(state: State, subject: str | None, mode: object, *, force: bool) -> tuple[str, tuple[Record, ...]]:
    """Set a mode: return the mode, and the records to write to the topic. A subject in mode IMPORT accepts ids from
    clients, so it must be empty, unless `force` is set.
    """
    wanted = mode.upper() if isinstance(mode, str) else None
    if wanted not in MODES:
        raise errors.invalid_mode(mode)
    used = state.subjects() if subject is None else state.versions(subject)
    if wanted == "IMPORT" and used and not force:
        raise errors.not_permitted("Cannot import since found existing subjects: delete them first, or use force=true")
    return wanted, (mode_record(subject, wanted),)


def remove_mode(state: State, subject: str) -> tuple[str, tuple[Record, ...]]:
    had = state.mode(subject)
    if had is None:
        raise errors.mode_not_configured(subject)
    return had, (mode_record(subject, None),)


def _require_writable(state: State, subject: str) -> None:
    if state.effective_mode(subject) == "READONLY":
        raise errors.not_permitted(f"Subject {subject} is in read-only mode")


def _require_unreferenced(state: State, version: SubjectVersion, *, permanent: bool) -> None:
    """Raise a RegistryError if another schema refers to the version. For a permanent deletion, references from
    soft-deleted schemas also count, because a soft-deleted schema still needs the schemas that it refers to.
    """
    if state.referring_ids(version.subject, version.version, deleted=permanent):
        raise errors.reference_exists(version.subject, version.version)
