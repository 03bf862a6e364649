"""The registry: responds to each call of the interface.

Before a read is answered from the state, the topic is read to its end, so that the client sees every change that any
registry has confirmed before. A look-up by schema id is an exception, because an id never changes its meaning: a known
schema is returned immediately.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from oncelog_registry import decisions, errors
from oncelog_registry.compatibility import pairs
from oncelog_registry.decisions import Deleted, Registered
from oncelog_registry.errors import RegistryError
from oncelog_registry.formats import Format, Resolved, fingerprint, format_of
from oncelog_registry.journal import Journal
from oncelog_registry.limits import (
    CHECK_SECONDS,
    MAX_CHECKS,
    MAX_REFERENCES,
    MAX_SCHEMA_BYTES,
    MAX_SUBJECT_CHARACTERS,
)
from oncelog_registry.records import TOPIC, Record
from oncelog_registry.schemas import PROTOBUF, TYPES, Reference, Schema, SubjectVersion
from oncelog_registry.state import State

T = TypeVar("T")

logger = logging.getLogger(__name__)

PARSED_SCHEMAS: Final = 500
"""Number of parsed schemas that are kept in memory, because each new schema is compared with the earlier versions of
its subject.
"""


class Registry:
    """A schema registry on one cluster. Call `start`, then any number of concurrent calls, then `close`."""

    def __init__(self, bootstrap: str, settings: Mapping[str, Any], topic: str = TOPIC) -> None:
        self._state = State()
        self._journal = Journal(bootstrap, settings, topic, self._state.apply)
        self._threads = ThreadPoolExecutor(MAX_CHECKS, thread_name_prefix="oncelog-registry")
        self._parsed: OrderedDict[tuple[str, ...], Any] = OrderedDict()
        """Cache of parsed schemas. The key consists of the fingerprints of the schema and of its references. Version
        numbers of the references are not enough, because a referenced version may have been deleted permanently.
        """

    async def start(self) -> None:
        """Read the topic, so that calls can be served. Raises KafkaError, UnusableTopic or RegistryError."""
        await self._journal.start()

    async def close(self) -> None:
        await self._journal.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def state(self) -> State:
        """Return the current state, with all changes that were committed before this call. Raises RegistryError 50001
        or 50002.
        """
        await self._journal.catch_up()
        return self._state

    async def with_id(self, schema_id: int) -> SubjectVersion:
        """Return a version that has this id. Raises RegistryError 40403 for an unknown id."""
        try:
            return self._state.with_id(schema_id)
        except RegistryError:
            return (await self.state()).with_id(schema_id)

    # --- schemas

    async def register(
        self, subject: str, schema: Schema, wanted_id: int | None = None, wanted_version: int | None = None
    ) -> SubjectVersion:
        """Register a schema under a subject, unless it is registered already. Raises RegistryError 409, 42201, 42205
        and others.
        """
        _check_subject(subject)
        print_of = _checked(schema)
        known = (await self.state()).same_schema(subject, print_of)
        if known is not None and wanted_id in (None, known.id) and wanted_version in (None, known.version):
            return known

        async def decide() -> tuple[SubjectVersion, Sequence[Record]]:
            state = self._state
            await self._parse(schema, state)
            if state.effective_mode(subject) != "IMPORT" and state.same_schema(subject, print_of) is None:
                found = await self._incompatibilities(subject, schema, state, state.versions(subject))
                if found:
                    raise errors.incompatible(subject, found)
            registered: Registered = decisions.register(state, subject, schema, print_of, wanted_id, wanted_version)
            return registered.version, registered.records

        return await self._journal.write(decide)

    async def look_up(self, subject: str, schema: Schema, *, deleted: bool) -> SubjectVersion:
        """Return the version of a subject that has this schema. Raises RegistryError 40401, 40403 or 42201."""
        state = await self.state()
        if not state.versions(subject, deleted=deleted):
            raise errors.subject_not_found(subject)
        found = state.same_schema(subject, _checked(schema), deleted=deleted)
        if found is None:
            await self._parse(schema, state)
            raise errors.schema_not_found()
        return found

    async def incompatibilities(self, subject: str, schema: Schema, version: int | str | None) -> list[str]:
        """Compare a schema with one version or, if `version` is None, with the versions that the subject's
        compatibility level requires; return the reasons why the schema may not be registered. Raises RegistryError
        40401, 40402 or 42201.
        """
        state = await self.state()
        _checked(schema)
        if version is None:
            return await self._incompatibilities(subject, schema, state, state.versions(subject))
        return await self._incompatibilities(subject, schema, state, [state.version(subject, version)])

    async def text(self, schema: Schema, form: str) -> str:
        """Return the text of a schema; with `form` "serialized", the descriptor of a Protobuf file in base64."""
        if form != "serialized" or schema.type != PROTOBUF:
            return schema.text
        from oncelog_registry.formats.protobuf import serialized

        return await self._in_thread(serialized, _resolved(schema, self._referred(schema, await self.state())))

    # --- deletions, levels, modes

    async def delete_version(self, subject: str, version: int | str, *, permanent: bool) -> int:
        async def decide() -> tuple[int, Sequence[Record]]:
            deleted: Deleted = decisions.delete_version(self._state, subject, version, permanent=permanent)
            return deleted.versions[0], deleted.records

        return await self._journal.write(decide)

    async def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        async def decide() -> tuple[list[int], Sequence[Record]]:
            return decisions.delete_subject(self._state, subject, permanent=permanent)

        return await self._journal.write(decide)

    async def set_level(self, subject: str | None, level: object) -> str:
        if subject is not None:
            _check_subject(subject)
        return await self._set(lambda: decisions.set_level(subject, level))

    async def remove_level(self, subject: str | None) -> str:
        return await self._set(lambda: decisions.remove_level(self._state, subject))

    async def set_mode(self, subject: str | None, mode: object, *, force: bool) -> str:
        if subject is not None:
            _check_subject(subject)
        return await self._set(lambda: decisions.set_mode(self._state, subject, mode, force=force))

    async def remove_mode(self, subject: str) -> str:
        return await self._set(lambda: decisions.remove_mode(self._state, subject))

    async def _set(self, decided: Callable[[], tuple[str, Sequence[Record]]]) -> str:
        async def decide() -> tuple[str, Sequence[Record]]:
            return decided()

        return await self._journal.write(decide)

    # --- parsing and comparing

    async def _incompatibilities(
        self, subject: str, schema: Schema, state: State, earlier: Sequence[SubjectVersion]
    ) -> list[str]:
        level = state.effective_level(subject)
        new = await self._parse(schema, state)
        for old, new_reads in pairs(level, earlier):
            if old.schema.type != schema.type:
                return [f"version {old.version} is {old.schema.type}, the new schema is {schema.type}"]
            parsed = await self._parse(old.schema, state)
            reader, writer = (new, parsed) if new_reads else (parsed, new)
            found = await self._in_thread(format_of(schema.type).differences, reader, writer)
            if found:
                who = "the new schema cannot read version" if new_reads else "the new schema cannot be read by version"
                return [f"{who} {old.version}: {each}" for each in found]
        return []

    async def _parse(self, schema: Schema, state: State) -> Any:
        """Return the parsed schema, from the cache if possible. Raises RegistryError 42201 for an invalid schema."""
        referred = self._referred(schema, state)
        key = (fingerprint(schema), *(each.fingerprint for each in referred.values()))
        if key in self._parsed:
            self._parsed.move_to_end(key)
            return self._parsed[key]
        form: Format = format_of(schema.type)
        parsed = await self._in_thread(form.parse, _resolved(schema, referred))
        self._parsed[key] = parsed
        if len(self._parsed) > PARSED_SCHEMAS:
            self._parsed.popitem(last=False)
        return parsed

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run `work` (parsing or comparing) in a thread. Raises RegistryError 42201 with the reason why a schema is
        refused; 50002 if the work takes longer than CHECK_SECONDS.
        """
        running = asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        try:
            return await asyncio.wait_for(asyncio.shield(running), CHECK_SECONDS)
        except TimeoutError:
            raise errors.store_timed_out(f"the schema was not checked in {CHECK_SECONDS:.0f} s") from None
        except RecursionError:
            raise errors.invalid_schema("it nests too deeply") from None
        except ValueError as error:
            raise errors.invalid_schema(str(error)) from error
        except Exception as error:
            # The libraries may raise any exception for unexpected schemas; such an exception is not an error of the
            # registry.
            logger.warning("a schema cannot be parsed or compared", exc_info=True)
            raise errors.invalid_schema(f"{type(error).__name__}: {error}") from error

    def _referred(self, schema: Schema, state: State) -> Mapping[str, SubjectVersion]:
        """Return all versions that a schema refers to, by the names that it uses, each version after its own
        references. Raises RegistryError 42201.
        """
        found: dict[str, SubjectVersion] = {}

        def visit(references: Sequence[Reference], path: tuple[tuple[str, int], ...]) -> None:
            for each in references:
                place = (each.subject, each.version)
                known = found.get(each.name)
                if known is not None and (known.subject, known.version) != place:
                    raise errors.invalid_schema(
                        f"two references are called {each.name!r}: {known.subject} version {known.version}, and "
                        f"{each.subject} version {each.version}"
                    )
                if known is not None or place in path:
                    continue
                if len(path) == MAX_REFERENCES:
                    raise errors.invalid_schema(f"it refers to schemas in a chain of more than {MAX_REFERENCES}")
                try:
                    referred = state.version(each.subject, each.version, deleted=True)
                except RegistryError as error:
                    raise errors.invalid_schema(f"its reference {each.name!r}: {error.message}") from error
                if referred.schema.type != schema.type:
                    raise errors.invalid_schema(f"its reference {each.name!r} is of type {referred.schema.type}")
                visit(referred.schema.references, (*path, place))
                found[each.name] = referred
                if len(found) > MAX_REFERENCES:
                    raise errors.invalid_schema(f"it refers to more than {MAX_REFERENCES} schemas")

        visit(schema.references, ())
        return found


def _resolved(schema: Schema, referred: Mapping[str, SubjectVersion]) -> Resolved:
    return Resolved(schema, [(name, version.schema) for name, version in referred.items()])


def _checked(schema: Schema) -> str:
    """Check a schema's type, size and text; returns its fingerprint. Raises RegistryError 42201."""
    if schema.type not in TYPES:
        raise errors.invalid_schema(f"the type {schema.type!r} is none of {', '.join(TYPES)}")
    size = len(json.dumps(schema.document(), ensure_ascii=False).encode())
    if size > MAX_SCHEMA_BYTES:
        raise errors.invalid_schema(f"it is longer than {MAX_SCHEMA_BYTES} bytes: {size} with its references, as JSON")
    if not schema.text.strip():
        raise errors.invalid_schema("it is empty")
    return fingerprint(schema)


def _check_subject(subject: str) -> None:
    if not subject or len(subject) > MAX_SUBJECT_CHARACTERS or any(ord(each) < 32 for each in subject):
        raise errors.invalid_subject(subject[:MAX_SUBJECT_CHARACTERS])
