"""Converts keys and values of records between bytes and the JSON that a command prints and reads, in the formats that
its options choose.

Between bytes and output, keys and values are JSON values (`serialization.json_values`); in the format `bytes`, they
stay bytes.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncelog.cli.text_records import Headers, InputRecord, OutputRecord
from oncelog.cli.value_formats import BYTES, REGISTRY, WITH_SCHEMA, Format, Formats
from oncelog.serialization.errors import SerializationError
from oncelog.serialization.json_values import json_value
from oncelog.serialization.serializer import SerializationContext

if TYPE_CHECKING:
    from oncelog.serialization import SchemaRegistry

Read = Callable[[bytes, SerializationContext], Awaitable[Any]]
"""Decodes bytes to a JSON value. Raises SerializationError, SchemaRegistryError."""
Write = Callable[[Any, SerializationContext], Awaitable[bytes | None]]
"""Encodes a JSON value as bytes. Raises SerializationError, SchemaRegistryError."""


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """A record to print: `key` and `value` are text; if their format supports JSON, `decoded` has the JSON values."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    decoded: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes records. With `raw_if_invalid`, a key or value that cannot be decoded stays bytes, and `complain` is
    called.
    """

    key: Read | None
    value: Read | None
    raw_if_invalid: bool
    complain: Callable[[str], None]

    async def record(self, record: OutputRecord) -> DecodedRecord:
        """Decode the key and the value. Raises SerializationError, which names the record, and SchemaRegistryError."""
        texts: dict[str, bytes | None] = {"key": record.key, "value": record.value}
        decoded = {}
        for name, read in (("key", self.key), ("value", self.value)):
            data = texts[name]
            if read is None or data is None:
                continue
            context = SerializationContext(record.topic, name == "key", record.headers)
            try:
                decoded[name] = json_value(await read(data, context))
            except SerializationError as error:
                where = f"{record.topic}:{record.partition}, offset {record.offset}: the {name}: {error}"
                if not self.raw_if_invalid:
                    raise SerializationError(f"{where} (--invalid bytes prints it as it is)") from error
                self.complain(where)
                continue
            texts[name] = _text(decoded[name])
        place = record.topic, record.partition, record.offset, record.timestamp_ms
        return DecodedRecord(*place, texts["key"], texts["value"], record.headers, decoded)


@dataclass(frozen=True, slots=True)
class Encoder:
    """Encodes the keys and values of records for one topic."""

    topic: str
    key: Write | None
    value: Write | None

    async def record(self, record: InputRecord) -> InputRecord:
        """Return the record with its key and value as bytes. Raises ValueError, SerializationError,
        SchemaRegistryError."""
        for name, write in (("key", self.key), ("value", self.value)):
            value = getattr(record, name)
            if write is not None and value is not None:
                setattr(record, name, await write(_json(value), SerializationContext(self.topic, name == "key")))
        return record


@asynccontextmanager
async def opened_decoder(
    formats: Formats, *, raw_if_invalid: bool, complain: Callable[[str], None]
) -> AsyncIterator[Decoder]:
    """Context manager: a decoder with its connections to the registry. Raises SerializationError for an unusable schema
    file.
    """
    async with _registry(formats) as registry:
        yield Decoder(_reader(formats.key, registry), _reader(formats.value, registry), raw_if_invalid, complain)


@asynccontextmanager
async def opened_encoder(formats: Formats, topic: str) -> AsyncIterator[Encoder]:
    """Context manager: an encoder with its connections to the registry. Raises SerializationError for an unusable
    schema file.
    """
    async with _registry(formats) as registry:
        yield Encoder(topic, _writer(formats.key, registry), _writer(formats.value, registry))


@asynccontextmanager
async def _registry(formats: Formats) -> AsyncIterator[SchemaRegistry | None]:
    url = formats.value.registry
    if url is None or not (formats.key.asks_registry or formats.value.asks_registry):
        yield None
        return
    from oncelog.serialization import SchemaRegistry

    async with SchemaRegistry(url) as registry:
        yield registry


def _reader(form: Format, registry: SchemaRegistry | None) -> Read | None:
    from oncelog import serialization

    if form.name == BYTES:
        return None
    if form.asks_registry:
        assert registry is not None
        return _by_registry(serialization.RegistryDeserializer(registry), form.name)
    match form.name:
        case "json":
            return serialization.JsonDeserializer().deserialize
        case "msgpack":
            return serialization.MessagePackDeserializer().deserialize
        case "short" | "integer" | "long" | "float" | "double":
            return serialization.NumberDeserializer(form.name).deserialize
    assert form.schema is not None
    return serialization.CodecDeserializer(serialization.codec_of_file(form.schema, form.message)).deserialize


def _by_registry(deserializer: Any, name: str) -> Read:
    wanted = {REGISTRY: None, "json-schema": "JSON"}.get(name, name.upper())

    async def read(data: bytes, context: SerializationContext) -> Any:
        found = await deserializer.deserialize(data, context)
        if wanted not in (None, found.type):
            raise SerializationError(f"schema {found.schema_id} is of the type {found.type}, not {wanted}")
        return found.value

    return read


def _writer(form: Format, registry: SchemaRegistry | None) -> Write | None:
    from oncelog import serialization

    if form.name == BYTES:
        return None
    match form.name:
        case "json":
            return serialization.JsonSerializer().serialize
        case "msgpack":
            return serialization.MessagePackSerializer().serialize
        case "short" | "integer" | "long" | "float" | "double":
            return serialization.NumberSerializer(form.name).serialize
    assert form.name in WITH_SCHEMA
    if registry is not None:
        return _writer_by_registry(form, registry)
    assert form.schema is not None
    codec = serialization.codec_of_file(form.schema, form.message)

    async def write(value: Any, _: SerializationContext) -> bytes:
        return codec.encode_bare(codec.from_json(value))

    return write


def _writer_by_registry(form: Format, registry: SchemaRegistry) -> Write:
    """Return a function that encodes with the latest schema of the subject. If a schema file is given, the function
    registers and uses the schema in that file.
    """
    from oncelog import serialization

    schema = None if form.schema is None else serialization.schema_of_file(form.schema)
    serializer: Any
    match form.name:
        case "avro":
            serializer = serialization.AvroSerializer(registry, schema)
        case "json-schema":
            serializer = serialization.JsonSchemaSerializer(registry, schema)
        case _:
            serializer = serialization.ProtobufJsonSerializer(registry, schema, message=form.message)

    async def write(value: Any, context: SerializationContext) -> bytes | None:
        codec = await serializer.codec(context)
        written: bytes | None = await serializer.serialize(codec.from_json(value), context)
        return written

    return write


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogateescape")


def _json(value: Any) -> Any:
    """Return the JSON value that the text of a plain line contains. With --json, `value` is a JSON value already, and
    is returned. Raises ValueError.
    """
    if not isinstance(value, bytes):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this format takes JSON, and this is none: {error}") from None
