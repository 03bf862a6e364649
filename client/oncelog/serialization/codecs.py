"""Provides the codecs of registered schemas, and caches them. Schemas are parsed in a thread, because parsing a long
schema would block the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from oncelog.serialization.codec import Codec
from oncelog.serialization.errors import SerializationError
from oncelog.serialization.schema_registry import SERIALIZED, SchemaRegistry
from oncelog.serialization.schemas import AVRO, JSON, PROTOBUF, Schema
from oncelog.serialization.shared_cache import SharedCache

MAX_CODECS: Final = 200
"""Maximum number of parsed schemas that are cached."""
FAILURE_SECONDS: Final = 5.0
"""Seconds for which an unusable schema is not parsed again."""


class Codecs:
    """The codecs of the schemas of one registry.

    `message` is the full name of the Protobuf message that codecs write; None means the first message of the file.
    """

    def __init__(self, registry: SchemaRegistry, message: str | None = None) -> None:
        self._registry = registry
        self._message = message
        self._by_id: SharedCache[int, Codec] = SharedCache(MAX_CODECS, failure_ttl_s=FAILURE_SECONDS)
        self._by_schema: SharedCache[Schema, Codec] = SharedCache(MAX_CODECS, failure_ttl_s=FAILURE_SECONDS)

    async def by_id(self, schema_id: int) -> Codec:
        """Return the codec of a schema id. Raises SchemaNotFound, RegistryUnavailable, and SerializationError for a
        schema that cannot be used.
        """

        async def load() -> Codec:
            schema = await self._registry.schema(schema_id)
            if schema.type == PROTOBUF:
                schema = await self._registry.schema(schema_id, SERIALIZED)
            try:
                return await self._made(schema)
            except SerializationError as error:
                raise SerializationError(f"schema {schema_id}: {error.message}") from error

        return await self._by_id.get(schema_id, load)

    async def of(self, schema: Schema) -> Codec:
        """Return the codec of a schema; a Protobuf schema is given as a serialized descriptor. Raises the errors of
        `by_id`.
        """
        return await self._by_schema.get(schema, lambda: self._made(schema))

    async def _made(self, schema: Schema) -> Codec:
        referred = await self._registry.referred(schema, SERIALIZED if schema.type == PROTOBUF else "")
        return await asyncio.to_thread(codec_of, schema, referred, self._message)


def codec_of(schema: Schema, referred: Mapping[str, Schema], message: str | None = None) -> Codec:
    """Return the codec of a schema; `referred` contains the schemas that it refers to, by name. Raises
    SerializationError.
    """
    match schema.type:
        case "AVRO":
            from oncelog.serialization.avro import AvroCodec

            return AvroCodec(schema, referred)
        case "JSON":
            from oncelog.serialization.json_schema import JsonSchemaCodec

            return JsonSchemaCodec(schema, referred)
        case "PROTOBUF":
            from oncelog.serialization.protobuf import ProtobufCodec

            return ProtobufCodec(schema, referred, message)
    raise SerializationError(
        f"there is no codec for schemas of the type {schema.type!r:.50}, only {AVRO}, {JSON}, {PROTOBUF}"
    )
