"""The interface of a codec: a parsed schema that turns values into payloads and payloads into values. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar


class Codec(ABC):
    """A parsed schema with the schemas that it refers to. `name` is the full name of the schema's record; None means
    that the schema has no name.
    """

    type: ClassVar[str]
    """The type of the schema: AVRO, JSON or PROTOBUF."""
    name: str | None

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Return the payload of a value. Raises SerializationError."""

    @abstractmethod
    def decode(self, payload: bytes) -> Any:
        """Return the value that a payload encodes. Raises SerializationError."""

    def encode_bare(self, value: Any) -> bytes:
        """Return the bytes that a serializer without a registry writes. Raises SerializationError."""
        return self.encode(value)

    def decode_bare(self, data: bytes) -> Any:
        """Return the value that a serializer without a registry wrote as these bytes. Raises SerializationError."""
        return self.decode(data)

    @abstractmethod
    def from_json(self, value: Any) -> Any:
        """Return the value for a JSON document; the document has the form that `json_value` writes. Raises
        SerializationError.
        """
