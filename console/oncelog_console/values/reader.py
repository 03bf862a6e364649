"""Determines how values were encoded, gets their schemas, and decodes the values in worker processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from oncelog.errors import KafkaError
from oncelog.serialization import SchemaRegistry
from oncelog.serialization.schema_registry import SERIALIZED
from oncelog.serialization.schemas import PROTOBUF
from oncelog.serialization.wire import HEADER, MAGIC
from oncelog_console.limits import MAX_SCHEMAS, REGISTRY_SECONDS, TASK_BYTES
from oncelog_console.values.tasks import Result, Task, WrittenWith
from oncelog_console.values.workers import Workers

NAMES: Final = {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protobuf"}


class ReadAs(StrEnum):
    """How values are decoded. AUTOMATIC: with the schema file of the topic; with the registry's schema if a schema id
    precedes the value; otherwise as text or bytes.
    """

    AUTOMATIC = "automatic"
    MESSAGE_PACK = "msgpack"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """The schema of a topic's values. `message`: the name of the message in a Protobuf file."""

    path: Path
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The decoded text of a value that is not plain text. `kind`: for example "Avro, schema 12". `text`: the value as
    JSON, None if there is a `problem`.
    """

    kind: str
    text: str | None
    is_cut: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ReadValue:
    """The result for one value; `matches`: whether the search expression is true for the value; `is_unread`: whether
    the value could not be decoded.
    """

    matches: bool
    reading: Reading | None = None
    is_unread: bool = False


class _Source(NamedTuple):
    """Describes how one value was encoded. `kind` is a description for the user; `problem` is the reason why the schema
    is missing, None if it is not missing.
    """

    kind: str
    schema: WrittenWith | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ValueReader:
    """`files`: the schema of a topic's values, by topic."""

    workers: Workers
    registry: SchemaRegistry | None = None
    files: Mapping[str, SchemaFile] = field(default_factory=dict)

    def reads(self, topic: str, read_as: ReadAs) -> bool:
        """Return whether values of the topic may have an encoding other than text or plain bytes."""
        if read_as is ReadAs.AUTOMATIC:
            return self.registry is not None or topic in self.files
        return read_as is not ReadAs.BYTES

    async def read(
        self,
        topic: str,
        values: Sequence[bytes | None],
        read_as: ReadAs,
        *,
        is_key: bool = False,
        expression: str | None = None,
        characters: int = 0,
        indents: bool = False,
    ) -> list[ReadValue]:
        """Return an item for each value: the value as text of up to `characters` characters, and whether the expression
        is true for the value. Raises TaskFailed.
        """
        sources = await self._sources(topic, values, read_as, is_key=is_key)
        asked = [
            index
            for index, value in enumerate(values)
            if value is not None and (expression is not None or sources[index].schema is not None)
        ]
        found = [
            ReadValue(False, None if source.problem is None else Reading(source.kind, None, problem=source.problem))
            for source in sources
        ]
        for part in parts(asked, values):
            schemas = list(dict.fromkeys(map(_Hashed, (s for i in part if (s := sources[i].schema) is not None))))
            places = {each: place for place, each in enumerate(schemas)}
            task = Task(
                [values[index] for index in part],
                [None if (s := sources[index].schema) is None else places[_Hashed(s)] for index in part],
                [each.schema for each in schemas],
                expression,
                characters,
                indents,
            )
            result = await self.workers.do(task)
            for place, index in enumerate(part):
                found[index] = _read_value(sources[index], result, place)
        return found

    async def _sources(
        self, topic: str, values: Sequence[bytes | None], read_as: ReadAs, *, is_key: bool
    ) -> list[_Source]:
        plain = _Source("", None)
        if read_as is ReadAs.BYTES or (read_as is ReadAs.MESSAGE_PACK and is_key):
            return [plain] * len(values)
        if read_as is ReadAs.MESSAGE_PACK:
            return [_Source("MessagePack", WrittenWith())] * len(values)
        file = None if is_key else self.files.get(topic)
        if file is not None:
            source = _Source(f"by {file.path.name}", WrittenWith(file=str(file.path), message=file.message))
            return [source] * len(values)
        if self.registry is None:
            return [plain] * len(values)
        ids = [schema_id_of(value) for value in values]
        of_ids = await self._of_registry([each for each in dict.fromkeys(ids) if each is not None])
        return [plain if each is None else of_ids[each] for each in ids]

    async def _of_registry(self, ids: Sequence[int]) -> dict[int, _Source]:
        found = await asyncio.gather(*(self._by_id(each) for each in ids[:MAX_SCHEMAS]))
        more = {each: _Source("unknown", None, f"more than {MAX_SCHEMAS} schemas") for each in ids[MAX_SCHEMAS:]}
        return dict(zip(ids, found, strict=False)) | more

    async def _by_id(self, schema_id: int) -> _Source:
        assert self.registry is not None
        try:
            async with asyncio.timeout(REGISTRY_SECONDS):
                schema = await self.registry.schema(schema_id)
                form = SERIALIZED if schema.type == PROTOBUF else ""
                if form:
                    schema = await self.registry.schema(schema_id, form)
                referred = await self.registry.referred(schema, form)
        except TimeoutError:
            return _Source(f"schema {schema_id}", None, "the schema registry does not answer in time")
        except KafkaError as error:
            return _Source(f"schema {schema_id}", None, error.message)
        of_others = {name: (each.text, each.type) for name, each in referred.items()}
        written_with = WrittenWith(schema.text, schema.type, of_others)
        return _Source(f"{NAMES.get(schema.type, schema.type)}, schema {schema_id}", written_with)


class _Hashed:
    """A schema of a registry. Values with the same schema id share one object, so that schemas can be compared by
    identity.
    """

    __slots__ = ("schema",)

    def __init__(self, schema: WrittenWith) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed) and self.schema is other.schema


def schema_id_of(value: bytes | None) -> int | None:
    """Return the schema id that seems to precede a value; None if none does."""
    if value is None or len(value) < HEADER.size or value[0] != MAGIC:
        return None
    return int(HEADER.unpack_from(value)[1])


def parts(asked: Sequence[int], values: Sequence[bytes | None]) -> Iterator[list[int]]:
    """Yield lists of indexes of values, one list for each task of a worker: each list has values of at most TASK_BYTES
    together, or one larger value.
    """
    part: list[int] = []
    size = 0
    for index in asked:
        part.append(index)
        size += len(values[index] or b"")
        if size >= TASK_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _read_value(source: _Source, result: Result, place: int) -> ReadValue:
    problem = result.problems[place]
    reading = None
    if source.schema is not None:
        reading = Reading(source.kind, result.texts[place], result.cut[place], problem)
    elif source.problem is not None:
        reading = Reading(source.kind, None, problem=source.problem)
    return ReadValue(result.matches[place], reading, problem is not None)
