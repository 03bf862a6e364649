"""Combines serializers or deserializers, one for each topic. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncelog.serialization.errors import SerializationError
from oncelog.serialization.serializer import Deserializer, SerializationContext, Serializer


class PerTopicSerializer(Serializer[Any]):
    """Uses the serializer of the record's topic, or `default`."""

    def __init__(self, topics: Mapping[str, Serializer[Any]], default: Serializer[Any] | None = None) -> None:
        self._topics = dict(topics)
        self._default = default

    async def serialize(self, value: Any, context: SerializationContext) -> bytes | None:
        chosen = self._topics.get(context.topic, self._default)
        if chosen is None:
            raise SerializationError(f"there is no serializer for the topic {context.topic!r}, and no default")
        return await chosen.serialize(value, context)


class PerTopicDeserializer(Deserializer[Any]):
    """Uses the deserializer of the record's topic, or `default`."""

    def __init__(self, topics: Mapping[str, Deserializer[Any]], default: Deserializer[Any] | None = None) -> None:
        self._topics = dict(topics)
        self._default = default

    async def deserialize(self, data: bytes, context: SerializationContext) -> Any:
        chosen = self._topics.get(context.topic, self._default)
        if chosen is None:
            raise SerializationError(f"there is no deserializer for the topic {context.topic!r}, and no default")
        return await chosen.deserialize(data, context)
