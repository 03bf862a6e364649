"""Serializes keys and values of records to bytes, before the partition of a record is chosen."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from oncelog.serialization.errors import SerializationError
from oncelog.serialization.serializer import Headers, SerializationContext, Serializer
from oncelog_protocol.records.builder import HeaderSequence


class Serializing(NamedTuple):
    """The serializers of a producer. None means that keys or values are already bytes."""

    key: Serializer[Any] | None
    value: Serializer[Any] | None

    async def record(self, topic: str, key: Any, value: Any, headers: HeaderSequence) -> tuple[Any, Any]:
        """Return key and value as bytes; None stays None. Raises SerializationError, whose message says whether key or
        value failed, and SchemaRegistryError.
        """
        try:
            if self.key is not None and key is not None:
                key = await self.key.serialize(key, SerializationContext(topic, True, cast(Headers, headers)))
        except SerializationError as error:
            raise SerializationError(f"the key of a record for {topic!r}: {error}") from error
        try:
            if self.value is not None and value is not None:
                value = await self.value.serialize(value, SerializationContext(topic, False, cast(Headers, headers)))
        except SerializationError as error:
            raise SerializationError(f"the value of a record for {topic!r}: {error}") from error
        return key, value
