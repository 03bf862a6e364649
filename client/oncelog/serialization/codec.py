"""The interface of a codec: a parsed schema that turns values into payloads and payloads into values. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar


class Codec(ABC):
    """A parsed schema with those that it refers to. `name`: the full name of its record; None: it has none."""

    type: ClassVar[str]
    """AVRO, JSON or PROTOBUF."""
    name: str | None

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Return the payload of a value. Raises SerializationError."""

    @abstractmethod
    def decode(self, payload: bytes) -> Any:
        """Return the value of a payload. Raises SerializationError."""

    def encode_bare(self, value: Any) -> bytes:
        """Return what a serializer without a registry writes. Raises SerializationError."""
        return self.encode(value)

    def decode_bare(self, data: bytes) -> Any:
        """Return the value of what a serializer without a registry writes. Raises SerializationError."""
        return self.decode(data)

    @abstractmethod
    def from_json(self, value: Any) -> Any:
        """Return the value that a JSON document stands for, as `json_value` writes it. Raises SerializationError."""
