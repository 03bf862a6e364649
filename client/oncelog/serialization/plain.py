"""Serializers and deserializers for text, bytes, numbers and UUIDs in the formats of Java's client. Pure."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception
from typing import Final, Literal
from uuid import UUID

from oncelog.serialization.errors import SerializationError
from oncelog.serialization.serializer import Deserializer, SerializationContext, Serializer

NumberType = Literal["short", "integer", "long", "float", "double"]
_NUMBERS: Final = {
    "short": Struct(">h"),
    "integer": Struct(">i"),
    "long": Struct(">q"),
    "float": Struct(">f"),
    "double": Struct(">d"),
}


class BytesSerializer(Serializer[bytes | bytearray | memoryview]):
    """Passes bytes through unchanged."""

    async def serialize(self, value: bytes | bytearray | memoryview, context: SerializationContext) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise SerializationError(f"bytes are needed, not {type(value).__name__}")
        return bytes(value)


class BytesDeserializer(Deserializer[bytes]):
    """Passes bytes through unchanged."""

    async def deserialize(self, data: bytes, context: SerializationContext) -> bytes:
        return data


class StringSerializer(Serializer[str]):
    """Writes text in an encoding of Python, by default UTF-8."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    async def serialize(self, value: str, context: SerializationContext) -> bytes:
        if not isinstance(value, str):
            raise SerializationError(f"a str is needed, not {type(value).__name__}")
        try:
            return value.encode(self._encoding)
        except UnicodeEncodeError as error:
            raise SerializationError(f"a text is not {self._encoding}: {error}") from error


class StringDeserializer(Deserializer[str]):
    """Reads text in an encoding of Python, by default UTF-8."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    async def deserialize(self, data: bytes, context: SerializationContext) -> str:
        try:
            return data.decode(self._encoding)
        except UnicodeDecodeError as error:
            raise SerializationError(f"{len(data)} bytes are no {self._encoding}: {error}") from error


class NumberSerializer(Serializer[float]):
    """Writes a number, big-endian, with as many bytes as Java's type has: 2 (short), 4 (integer, float) or 8 (long,
    double).
    """

    def __init__(self, number_type: NumberType) -> None:
        self._type = number_type
        self._struct = _NUMBERS[number_type]

    async def serialize(self, value: float, context: SerializationContext) -> bytes:
        try:
            return self._struct.pack(value)
        except (StructError, OverflowError) as error:
            raise SerializationError(f"{value!r:.100} is no {self._type}: {error}") from error


class NumberDeserializer(Deserializer[float]):
    """Reads a number, big-endian, with as many bytes as Java's type has: 2 (short), 4 (integer, float) or 8 (long,
    double).
    """

    def __init__(self, number_type: NumberType) -> None:
        self._type = number_type
        self._struct = _NUMBERS[number_type]

    async def deserialize(self, data: bytes, context: SerializationContext) -> float:
        if len(data) != self._struct.size:
            raise SerializationError(f"{len(data)} bytes are no {self._type}, which has {self._struct.size}")
        number: float = self._struct.unpack(data)[0]
        return number


class UuidSerializer(Serializer[UUID]):
    """Writes a UUID as text, like Java's UUIDSerializer."""

    async def serialize(self, value: UUID, context: SerializationContext) -> bytes:
        if not isinstance(value, UUID):
            raise SerializationError(f"a UUID is needed, not {type(value).__name__}")
        return str(value).encode()


class UuidDeserializer(Deserializer[UUID]):
    """Reads a UUID as text, as Java's UUIDSerializer writes it."""

    async def deserialize(self, data: bytes, context: SerializationContext) -> UUID:
        try:
            return UUID(data.decode())
        except ValueError as error:
            raise SerializationError(f"{data[:50]!r} is not a UUID") from error
