"""Deserializes keys and values of records that a share consumer has acquired."""

from __future__ import annotations

from typing import Any

from oncelog.consumer.deserializing import Deserializing
from oncelog.serialization.errors import RecordDeserializationError, SchemaRegistryError, SerializationError
from oncelog.share.share_records import ShareRecord


async def deserialized(raw: ShareRecord, deserializing: Deserializing) -> ShareRecord[Any, Any]:
    """Return the record with key and value deserialized. Raises SchemaRegistryError; for any other error of a
    deserializer, raises RecordDeserializationError, whose `record` is `raw`, so that the application can reject or
    release this record. An unexpected exception is the error's cause.
    """
    try:
        return raw._replace(record=await deserializing.record(raw.record))
    except SchemaRegistryError:
        raise
    except RecordDeserializationError as error:
        problem = error.__cause__
        assert isinstance(problem, SerializationError)
        raise RecordDeserializationError(raw, problem) from problem
    except Exception as error:  # otherwise every poll would fail at this record, until its lock expires
        problem = SerializationError(f"{type(error).__name__}: {error}")
        raise RecordDeserializationError(raw, problem) from error
