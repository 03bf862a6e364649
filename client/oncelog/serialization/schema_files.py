"""The codec of a schema in a file, for values that are written without a registry: no schema id precedes their payload.

NAME.avsc   Avro
NAME.json   JSON Schema
NAME.desc, NAME.pb, NAME.binpb   Protobuf: the output of `protoc --include_imports --descriptor_set_out=NAME.desc`
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any, Final

from oncelog.serialization.codec import Codec
from oncelog.serialization.codecs import codec_of
from oncelog.serialization.errors import SerializationError
from oncelog.serialization.schemas import AVRO, JSON, PROTOBUF, Schema
from oncelog.serialization.serializer import Deserializer, SerializationContext, Serializer

TYPES: Final = {".avsc": AVRO, ".json": JSON, ".desc": PROTOBUF, ".pb": PROTOBUF, ".binpb": PROTOBUF}
MAX_FILE_BYTES: Final = 16 * 1024 * 1024


def codec_of_file(path: Path, message: str | None = None) -> Codec:
    """Return the codec of the schema in a file. `message` is the full name of a Protobuf message; None means the first
    message of the last file in the descriptor set.

    Raises SerializationError for a file with an unknown extension, a file that is too long, and a schema that cannot be
    used. Raises OSError for a file that cannot be read.
    """
    try:
        schema, referred = _read(path)
        return codec_of(schema, referred, message if schema.type == PROTOBUF else None)
    except (SerializationError, UnicodeDecodeError) as error:
        raise SerializationError(f"{path}: {error}") from error


def schema_of_file(path: Path) -> Schema:
    """Return the schema in a file, for its registration. Raises the errors of `codec_of_file`, and SerializationError
    for a Protobuf file that imports other files, because each file must be registered separately.
    """
    try:
        schema, referred = _read(path)
        if referred:
            raise SerializationError(f"the .proto file imports {', '.join(referred)}: register it with its imports")
        return schema
    except (SerializationError, UnicodeDecodeError) as error:
        raise SerializationError(f"{path}: {error}") from error


def _read(path: Path) -> tuple[Schema, dict[str, Schema]]:
    """Return the schema, and the schemas that it refers to by name."""
    schema_type = TYPES.get(path.suffix)
    if schema_type is None:
        raise SerializationError(f"a schema is a file {', '.join(f'*{each}' for each in TYPES)}")
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise SerializationError(f"a schema has at most {MAX_FILE_BYTES} bytes")
    if schema_type == PROTOBUF:
        return _protobuf(data)
    return Schema(data.decode(), schema_type), {}


def _protobuf(data: bytes) -> tuple[Schema, dict[str, Schema]]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    from oncelog.serialization.protobuf import is_well_known

    try:
        files = list(FileDescriptorSet.FromString(data).file)
    except DecodeError as error:
        raise SerializationError(f"the file is not a descriptor set: {error}") from error
    if not files:
        raise SerializationError("the descriptor set has no file")
    schemas = {each.name: Schema(b64encode(each.SerializeToString()).decode(), PROTOBUF) for each in files}
    main = schemas.pop(files[-1].name)
    return main, {name: each for name, each in schemas.items() if not is_well_known(name)}


class CodecSerializer(Serializer[Any]):
    """Writes values with one schema, without a schema id before the payload."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    async def serialize(self, value: Any, context: SerializationContext) -> bytes:
        return self._codec.encode_bare(value)


class CodecDeserializer(Deserializer[Any]):
    """Reads values with one schema, without a schema id before the payload."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    async def deserialize(self, data: bytes, context: SerializationContext) -> Any:
        return self._codec.decode_bare(data)
