"""Chooses the subject under which the schema of a key or value is registered. Pure.

The functions are the three strategies of the Confluent serializers. A strategy is a function of the context and of the
full name of the record (in JSON Schema, its title; None if the schema has no name).
"""

from __future__ import annotations

from collections.abc import Callable

from oncelog.serialization.errors import SerializationError
from oncelog.serialization.serializer import SerializationContext

SubjectStrategy = Callable[[SerializationContext, str | None], str]


def topic_name(context: SerializationContext, record: str | None) -> str:
    """Return `orders-value` or `orders-key`, for example; this strategy is the default."""
    return f"{context.topic}-{'key' if context.is_key else 'value'}"


def record_name(context: SerializationContext, record: str | None) -> str:
    """Return `com.example.Order`, for example; a record then has one schema history for all topics. Raises
    SerializationError for a schema without a name.
    """
    return _named(record)


def topic_record_name(context: SerializationContext, record: str | None) -> str:
    """Return `orders-com.example.Order`, for example; a topic may then have several kinds of records. Raises
    SerializationError for a schema without a name."""
    return f"{context.topic}-{_named(record)}"


def _named(record: str | None) -> str:
    if record is None:
        raise SerializationError("the subject is named after the record, and the schema has no name")
    return record
