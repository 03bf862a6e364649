"""The interfaces of serializers and deserializers. Pure.

Serializers and deserializers are asynchronous, because a schema may have to be requested from a registry; with a cached
schema there is no wait. Serializers and deserializers are never called with None: a None key or value stays None, and a
None value is a tombstone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

Headers = Sequence[tuple[str, bytes | None]]


class SerializationContext(NamedTuple):
    """Says to which record a key or value belongs: its topic, whether it is the key, and the headers of its record."""

    topic: str
    is_key: bool = False
    headers: Headers = ()


class Serializer(ABC, Generic[T]):
    """Turns keys or values into bytes."""

    @abstractmethod
    async def serialize(self, value: T, context: SerializationContext) -> bytes | None:
        """Return the bytes of `value`; None for a tombstone. Raises SerializationError, SchemaRegistryError."""


class Deserializer(ABC, Generic[T]):
    """Turns bytes into keys or values."""

    @abstractmethod
    async def deserialize(self, data: bytes, context: SerializationContext) -> T:
        """Return the value of `data`. Raises SerializationError, SchemaRegistryError."""
