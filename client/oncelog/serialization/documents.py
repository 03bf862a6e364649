"""Serializers and deserializers for JSON and MessagePack without a schema. Pure.

Values are None, bool, int, float, str, list and dict; in MessagePack also bytes and times.
"""

from __future__ import annotations

import json
from typing import Any

from oncelog.serialization.errors import SerializationError
from oncelog.serialization.serializer import Deserializer, SerializationContext, Serializer


def json_bytes(value: Any) -> bytes:
    """Return compact JSON in UTF-8. Raises SerializationError."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:  # catches UnicodeEncodeError too, which is a ValueError
        raise SerializationError(f"a value cannot be written as JSON: {error}") from error


def json_document(data: bytes) -> Any:
    """Parse JSON in UTF-8, and return its value. Raises SerializationError."""
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"{len(data)} bytes are no JSON: {error}") from error


class JsonSerializer(Serializer[Any]):
    """Writes JSON in UTF-8. A None inside a document becomes null; a None as the entire value is a tombstone."""

    async def serialize(self, value: Any, context: SerializationContext) -> bytes:
        return json_bytes(value)


class JsonDeserializer(Deserializer[Any]):
    """Reads JSON in UTF-8."""

    async def deserialize(self, data: bytes, context: SerializationContext) -> Any:
        return json_document(data)


class MessagePackSerializer(Serializer[Any]):
    """Writes MessagePack with the library msgpack. Times must have a time zone."""

    def __init__(self) -> None:
        import msgpack

        self._pack = msgpack.packb

    async def serialize(self, value: Any, context: SerializationContext) -> bytes:
        try:
            packed: bytes = self._pack(value, datetime=True)
        except (TypeError, ValueError, OverflowError) as error:
            raise SerializationError(f"a value cannot be written as MessagePack: {error}") from error
        return packed


class MessagePackDeserializer(Deserializer[Any]):
    """Reads MessagePack with the library msgpack. A timestamp becomes a datetime in UTC."""

    def __init__(self) -> None:
        import msgpack

        self._unpack = msgpack.unpackb
        self._utc_datetime = 3

    async def deserialize(self, data: bytes, context: SerializationContext) -> Any:
        try:
            return self._unpack(data, timestamp=self._utc_datetime, strict_map_key=False)
        except Exception as error:  # msgpack may raise any exception for invalid bytes
            raise SerializationError(
                f"{len(data)} bytes are no MessagePack: {type(error).__name__}: {error}"
            ) from error
