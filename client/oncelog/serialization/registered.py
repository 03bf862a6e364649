"""Serializers and deserializers that use a schema registry. Confluent's serializers and this module read each other's
output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from oncelog.serialization.codec import Codec
from oncelog.serialization.codecs import Codecs
from oncelog.serialization.errors import SerializationError
from oncelog.serialization.schema_registry import SERIALIZED, SchemaRegistry
from oncelog.serialization.schemas import AVRO, JSON, PROTOBUF, Reference, Schema
from oncelog.serialization.serializer import Deserializer, SerializationContext, Serializer
from oncelog.serialization.subjects import SubjectStrategy, topic_name
from oncelog.serialization.wire import framed, unframed

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor
    from google.protobuf.message import Message

    from oncelog.serialization.avro import AvroCodec
    from oncelog.serialization.json_schema import JsonSchemaCodec

T = TypeVar("T")
M = TypeVar("M", bound="Message")


class _SchemaSerializer(Serializer[T], Generic[T]):
    """Finds the schema id and the codec of a value, and writes the id followed by the payload.

    - with `schema` and `auto_register` (the default), the schema is registered under the subject at first use.
    - with `schema` but without `auto_register`, the schema must already be registered.
    - without `schema`, the latest version of the subject is used; the latest version is looked up again after a minute.
    """

    type: str

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Schema | None,
        *,
        subject: SubjectStrategy,
        auto_register: bool,
        normalize: bool,
        to_dict: Callable[[T], Any] | None,
        message: str | None = None,
    ) -> None:
        self._registry = registry
        self._schema = Schema(schema, self.type) if isinstance(schema, str) else schema
        if self._schema is not None and self._schema.type != self.type:
            raise ValueError(f"schema: is of the type {self._schema.type}, not {self.type}")
        self._subject = subject
        self._auto_register = auto_register
        self._normalize = normalize
        self._to_dict = to_dict
        self._codecs = Codecs(registry, message)

    async def serialize(self, value: T, context: SerializationContext) -> bytes:
        schema_id, codec = await self._writer(context)
        return framed(schema_id, self._payload(codec, value if self._to_dict is None else self._to_dict(value)))

    async def codec(self, context: SerializationContext) -> Codec:
        """Return the codec for keys or values of this topic. Raises SchemaRegistryError,
        SerializationError.
        """
        return (await self._writer(context))[1]

    def _payload(self, codec: Codec, value: Any) -> bytes:
        return codec.encode(value)

    async def _writer(self, context: SerializationContext) -> tuple[int, Codec]:
        if self._schema is None:
            return await self._latest(context)
        codec = await self._codecs.of(self._schema)
        subject = self._subject(context, codec.name)
        find = self._registry.register if self._auto_register else self._registry.registered_id
        return await find(subject, self._schema, normalize=self._normalize), codec

    async def _latest(self, context: SerializationContext) -> tuple[int, Codec]:
        form = SERIALIZED if self.type == PROTOBUF else ""
        found = await self._registry.version(self._subject(context, None), form=form)
        if found.schema.type != self.type:
            raise SerializationError(
                f"the latest schema of {found.subject!r} is of the type {found.schema.type}, not {self.type}"
            )
        return found.id, await self._codecs.of(found.schema)


class AvroSerializer(_SchemaSerializer[T]):
    """Writes values of an Avro schema: dicts, or objects that `to_dict` turns into dicts.

    The options are described in `_SchemaSerializer`. A value of a union of records may use fastavro's notation
    ("full.Name", {...}).
    """

    type = AVRO

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Schema | None = None,
        *,
        subject: SubjectStrategy = topic_name,
        auto_register: bool = True,
        normalize: bool = False,
        to_dict: Callable[[T], Any] | None = None,
    ) -> None:
        super().__init__(
            registry,
            schema,
            subject=subject,
            auto_register=auto_register,
            normalize=normalize,
            to_dict=to_dict,
        )


class JsonSchemaSerializer(_SchemaSerializer[T]):
    """Writes documents of a JSON Schema, which are validated unless `validate` is False."""

    type = JSON

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Schema | None = None,
        *,
        subject: SubjectStrategy = topic_name,
        auto_register: bool = True,
        normalize: bool = False,
        to_dict: Callable[[T], Any] | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(
            registry,
            schema,
            subject=subject,
            auto_register=auto_register,
            normalize=normalize,
            to_dict=to_dict,
        )
        self._validates = validate

    def _payload(self, codec: Codec, value: Any) -> bytes:
        if self._validates:
            cast("JsonSchemaCodec", codec).validate(value)
        return codec.encode(value)


class ProtobufSerializer(Serializer["Message"]):
    """Writes messages of a generated class.

    The file of the class and the files that it imports are registered at first use (`auto_register`), or must already
    be registered; the subject of an imported file is the file's name.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        message: type[Message],
        *,
        subject: SubjectStrategy = topic_name,
        auto_register: bool = True,
        normalize: bool = False,
    ) -> None:
        self._registry = registry
        self._class = message
        self._subject = subject
        self._auto_register = auto_register
        self._normalize = normalize
        self._schema: Schema | None = None

    async def serialize(self, value: Message, context: SerializationContext) -> bytes:
        from oncelog.serialization.protobuf import encoded_message

        if not isinstance(value, self._class):
            raise SerializationError(f"a {self._class.__name__} is needed, not {type(value).__name__}")
        if self._schema is None:
            self._schema = await self._with_imports(value.DESCRIPTOR.file, {})
        find = self._registry.register if self._auto_register else self._registry.registered_id
        subject = self._subject(context, value.DESCRIPTOR.full_name)
        schema_id = await find(subject, self._schema, normalize=self._normalize)
        return framed(schema_id, encoded_message(value))

    async def _with_imports(self, file: FileDescriptor, known: dict[str, Reference]) -> Schema:
        """Return the schema of a file, after its imports were registered."""
        from oncelog.serialization.protobuf import is_well_known, text_of

        references = []
        for imported in file.dependencies:
            if is_well_known(imported.name):
                continue
            if imported.name not in known:
                schema = await self._with_imports(imported, known)
                if self._auto_register:
                    await self._registry.register(imported.name, schema, normalize=self._normalize)
                version = await self._registry.registered_version(imported.name, schema, normalize=self._normalize)
                known[imported.name] = Reference(imported.name, imported.name, version.version)
            references.append(known[imported.name])
        return Schema(text_of(file), PROTOBUF, tuple(references))


class ProtobufJsonSerializer(_SchemaSerializer[Any]):
    """Writes dicts in Protobuf's JSON form, with the latest schema of the subject or a schema given as a serialized
    descriptor.

    `message` is the full name of the message; None means the first message of the file.
    """

    type = PROTOBUF

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Schema | None = None,
        *,
        subject: SubjectStrategy = topic_name,
        auto_register: bool = True,
        normalize: bool = False,
        message: str | None = None,
    ) -> None:
        super().__init__(
            registry,
            schema,
            subject=subject,
            auto_register=auto_register,
            normalize=normalize,
            to_dict=None,
            message=message,
        )


class AvroDeserializer(Deserializer[T]):
    """Reads Avro values as dicts, or as objects that `from_dict` creates from them.

    `schema` is the reader's schema, to which values of other versions are converted by Avro's rules; None means that
    each value keeps its own schema.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Schema | None = None,
        *,
        from_dict: Callable[[Any], T] | None = None,
    ) -> None:
        self._codecs = Codecs(registry)
        self._reader = Schema(schema) if isinstance(schema, str) else schema
        self._from_dict = from_dict

    async def deserialize(self, data: bytes, context: SerializationContext) -> T:
        schema_id, payload = unframed(data)
        writer = await _typed(self._codecs, schema_id, AVRO)
        reader = None if self._reader is None else cast("AvroCodec", await self._codecs.of(self._reader))
        value = cast("AvroCodec", writer).read(payload, reader)
        return cast(T, value) if self._from_dict is None else self._from_dict(value)


class JsonSchemaDeserializer(Deserializer[T]):
    """Reads JSON documents, which are validated against the schema that they were written with unless `validate` is
    False.
    """

    def __init__(
        self, registry: SchemaRegistry, *, from_dict: Callable[[Any], T] | None = None, validate: bool = True
    ) -> None:
        self._codecs = Codecs(registry)
        self._from_dict = from_dict
        self._validates = validate

    async def deserialize(self, data: bytes, context: SerializationContext) -> T:
        schema_id, payload = unframed(data)
        codec = await _typed(self._codecs, schema_id, JSON)
        value = codec.decode(payload)
        if self._validates:
            cast("JsonSchemaCodec", codec).validate(value)
        return cast(T, value) if self._from_dict is None else self._from_dict(value)


class ProtobufDeserializer(Deserializer[M]):
    """Reads messages of a generated class. No request is sent to the registry, because the class contains the
    schema."""

    def __init__(self, message: type[M]) -> None:
        self._class = message

    async def deserialize(self, data: bytes, context: SerializationContext) -> M:
        from oncelog.serialization.protobuf import decoded_message

        return cast(M, decoded_message(self._class, unframed(data)[1]))


class Decoded(NamedTuple):
    """A value, with the id and type (AVRO, JSON, PROTOBUF) of the schema with which the value was written."""

    value: Any
    schema_id: int
    type: str


class RegistryDeserializer(Deserializer[Decoded]):
    """Reads any value that begins with a schema id, using the schema with that id. This deserializer is for programs
    that show values of unknown origin.

    A Protobuf message becomes a dict. Documents of a JSON Schema are not validated.
    """

    def __init__(self, registry: SchemaRegistry) -> None:
        self._codecs = Codecs(registry)

    async def deserialize(self, data: bytes, context: SerializationContext) -> Decoded:
        schema_id, payload = unframed(data)
        codec = await self._codecs.by_id(schema_id)
        return Decoded(codec.decode(payload), schema_id, codec.type)


async def _typed(codecs: Codecs, schema_id: int, wanted: str) -> Codec:
    codec = await codecs.by_id(schema_id)
    if codec.type != wanted:
        raise SerializationError(
            f"the value was written with schema {schema_id}, of the type {codec.type}, not {wanted}"
        )
    return codec
