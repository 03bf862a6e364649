"""Serializers and deserializers of keys and values, and the client of a schema registry.

serializer.py       (pure) the interfaces of serializers and deserializers
errors.py           (pure) the errors of serializers and of the registry client
plain.py            (pure) text, bytes, numbers and UUIDs, as Java's serializers write them
documents.py        (pure) JSON and MessagePack without a schema
per_topic.py        (pure) a serializer or deserializer for each topic
schemas.py          (pure) a schema, a reference to another schema, a version of a subject
subjects.py         (pure) the subject of a schema: by topic, by record name, or by both
wire.py             (pure) the Confluent wire format: the id of a schema in front of the payload
registry_http.py    requests to a schema registry, bounded in time and size
shared_cache.py     a bounded cache whose missing values are loaded once
schema_registry.py  the client of a schema registry
codec.py            (pure) the interface of a codec: a parsed schema that encodes and decodes
avro_bounds.py      (pure) which Avro schemas the fast reader of fastavro may read
avro.py             (pure) the Avro codec, based on fastavro
avro_json.py        (pure) converts values of Avro from and to JSON
json_schema.py      (pure) the JSON Schema codec, based on jsonschema
protobuf.py         (pure) the Protobuf codec, based on the descriptors of a schema
codecs.py           the codec of a registered schema, cached
schema_files.py     the codec of a schema in a file, for values without a registry
registered.py       the serializers and deserializers that use a registry
json_values.py      (pure) converts any decoded value to JSON

The names below are imported at first use: the formats need the extra `serializers` (fastavro, jsonschema, protobuf,
msgpack, httpx), while plain serializers need no extra.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from oncelog.serialization.documents import (
        JsonDeserializer,
        JsonSerializer,
        MessagePackDeserializer,
        MessagePackSerializer,
    )
    from oncelog.serialization.errors import (
        RecordDeserializationError,
        RegistryRefused,
        RegistryUnavailable,
        SchemaNotFound,
        SchemaRegistryError,
        SerializationError,
    )
    from oncelog.serialization.json_values import json_value
    from oncelog.serialization.per_topic import PerTopicDeserializer, PerTopicSerializer
    from oncelog.serialization.plain import (
        BytesDeserializer,
        BytesSerializer,
        NumberDeserializer,
        NumberSerializer,
        StringDeserializer,
        StringSerializer,
        UuidDeserializer,
        UuidSerializer,
    )
    from oncelog.serialization.registered import (
        AvroDeserializer,
        AvroSerializer,
        Decoded,
        JsonSchemaDeserializer,
        JsonSchemaSerializer,
        ProtobufDeserializer,
        ProtobufJsonSerializer,
        ProtobufSerializer,
        RegistryDeserializer,
    )
    from oncelog.serialization.schema_files import CodecDeserializer, CodecSerializer, codec_of_file, schema_of_file
    from oncelog.serialization.schema_registry import SchemaRegistry
    from oncelog.serialization.schemas import Reference, RegisteredSchema, Schema
    from oncelog.serialization.serializer import Deserializer, SerializationContext, Serializer
    from oncelog.serialization.subjects import record_name, topic_name, topic_record_name

_HOMES: Final = {
    "documents": ("JsonDeserializer", "JsonSerializer", "MessagePackDeserializer", "MessagePackSerializer"),
    "errors": (
        "RecordDeserializationError",
        "RegistryRefused",
        "RegistryUnavailable",
        "SchemaNotFound",
        "SchemaRegistryError",
        "SerializationError",
    ),
    "json_values": ("json_value",),
    "per_topic": ("PerTopicDeserializer", "PerTopicSerializer"),
    "plain": (
        "BytesDeserializer",
        "BytesSerializer",
        "NumberDeserializer",
        "NumberSerializer",
        "StringDeserializer",
        "StringSerializer",
        "UuidDeserializer",
        "UuidSerializer",
    ),
    "registered": (
        "AvroDeserializer",
        "AvroSerializer",
        "Decoded",
        "JsonSchemaDeserializer",
        "JsonSchemaSerializer",
        "ProtobufDeserializer",
        "ProtobufJsonSerializer",
        "ProtobufSerializer",
        "RegistryDeserializer",
    ),
    "schema_files": ("CodecDeserializer", "CodecSerializer", "codec_of_file", "schema_of_file"),
    "schema_registry": ("SchemaRegistry",),
    "schemas": ("Reference", "RegisteredSchema", "Schema"),
    "serializer": ("Deserializer", "SerializationContext", "Serializer"),
    "subjects": ("record_name", "topic_name", "topic_record_name"),
}

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "BytesDeserializer",
    "BytesSerializer",
    "CodecDeserializer",
    "CodecSerializer",
    "Decoded",
    "Deserializer",
    "JsonDeserializer",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "JsonSerializer",
    "MessagePackDeserializer",
    "MessagePackSerializer",
    "NumberDeserializer",
    "NumberSerializer",
    "PerTopicDeserializer",
    "PerTopicSerializer",
    "ProtobufDeserializer",
    "ProtobufJsonSerializer",
    "ProtobufSerializer",
    "RecordDeserializationError",
    "Reference",
    "RegisteredSchema",
    "RegistryDeserializer",
    "RegistryRefused",
    "RegistryUnavailable",
    "Schema",
    "SchemaNotFound",
    "SchemaRegistry",
    "SchemaRegistryError",
    "SerializationContext",
    "SerializationError",
    "Serializer",
    "StringDeserializer",
    "StringSerializer",
    "UuidDeserializer",
    "UuidSerializer",
    "codec_of_file",
    "json_value",
    "record_name",
    "schema_of_file",
    "topic_name",
    "topic_record_name",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(f"{__name__}.{module}"), name)
            globals()[name] = value  # store the name here, so that later accesses do not call __getattr__
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
