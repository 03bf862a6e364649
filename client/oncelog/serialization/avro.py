"""The Avro codec, based on fastavro. Pure.

If the entire schema is the type `bytes`, a value is written unchanged, without a length prefix, as the Confluent
serializers do.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro._read_py import schemaless_reader as reader_in_python
from fastavro.schema import SchemaParseException, UnknownType

from oncelog.serialization.avro_bounds import check_readable, with_names
from oncelog.serialization.avro_json import from_json
from oncelog.serialization.codec import Codec
from oncelog.serialization.errors import SerializationError
from oncelog.serialization.schemas import AVRO, Schema

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class AvroCodec(Codec):
    """A parsed Avro schema that encodes and decodes values."""

    type: ClassVar[str] = AVRO

    def __init__(self, schema: Schema, referred: Mapping[str, Schema]) -> None:
        """Parse the schema. Raises SerializationError."""
        self._named: dict[str, Any] = {}
        try:
            for each in referred.values():
                parse_schema(_loaded(each), self._named)
            self.parsed = parse_schema(_loaded(schema), self._named)
            self._is_fast = check_readable(with_names(self.parsed, self._named))
        except (
            SchemaParseException,
            UnknownType,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
        ) as error:
            raise SerializationError(f"the schema is not an Avro schema that can be used: {error}") from error
        self.name = _name_of(self.parsed)
        self._is_bytes = _is_bytes(self.parsed)

    def encode(self, value: Any) -> bytes:
        if self._is_bytes:
            if not isinstance(value, bytes | bytearray | memoryview):
                raise SerializationError(f"the schema is bytes, and the value a {type(value).__name__}")
            return bytes(value)
        stream = io.BytesIO()
        try:
            schemaless_writer(stream, self.parsed, value)
        except Exception as error:  # fastavro may raise any exception for an unfit value
            raise SerializationError(
                f"a value is not of its Avro schema{_of(self.name)}: {_said(error)}; the value is {value!r:.300}"
            ) from error
        return stream.getvalue()

    def decode(self, payload: bytes) -> Any:
        return self.read(payload, None)

    def read(self, payload: bytes, reader: AvroCodec | None) -> Any:
        """Return the value of a payload, converted to the schema `reader`. Raises SerializationError."""
        if self._is_bytes and (reader is None or reader._is_bytes):
            return payload
        stream = io.BytesIO(payload)
        is_fast = self._is_fast and (reader is None or reader._is_fast)
        read = schemaless_reader if is_fast else reader_in_python
        try:
            value = read(stream, self.parsed, None if reader is None else reader.parsed)
        except Exception as error:  # fastavro may raise any exception for invalid bytes
            raise SerializationError(
                f"{len(payload)} bytes are not of the Avro schema{_of(self.name)}: {_said(error)}"
            ) from error
        rest = len(payload) - stream.tell()
        if rest:
            raise SerializationError(f"there are {rest} bytes more than the Avro schema{_of(self.name)} says")
        return value

    def from_json(self, value: Any) -> Any:
        return from_json(self.parsed, self._named, value)


def _loaded(schema: Schema) -> Any:
    """Return the JSON of a schema. The text `int`, without quotes, is also accepted as a primitive type."""
    text = schema.text.strip()
    return text if text in PRIMITIVES else json.loads(text)


def _name_of(schema: Any) -> str | None:
    """Return the full name of a record, or the type of a primitive; None for a union."""
    if isinstance(schema, str):
        return schema
    if isinstance(schema, list):
        return None
    return str(schema.get("name", schema["type"]))


def _is_bytes(schema: Any) -> bool:
    return schema == "bytes" or (
        isinstance(schema, dict) and schema.get("type") == "bytes" and "logicalType" not in schema
    )


def _of(name: str | None) -> str:
    return "" if name is None else f" {name}"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
