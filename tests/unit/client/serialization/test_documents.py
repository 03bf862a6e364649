from datetime import UTC, datetime
from typing import Any

import pytest

from oncelog.serialization import (
    Deserializer,
    JsonDeserializer,
    JsonSerializer,
    MessagePackDeserializer,
    MessagePackSerializer,
    SerializationContext,
    SerializationError,
    Serializer,
)

PLACE = SerializationContext("orders")


@pytest.mark.parametrize(
    ("serializer", "deserializer", "value"),
    [
        (JsonSerializer(), JsonDeserializer(), {"a": [1, None, "ü"]}),
        (MessagePackSerializer(), MessagePackDeserializer(), {"a": [1, b"\0", 1.5], 7: None}),
        (MessagePackSerializer(), MessagePackDeserializer(), datetime(2026, 1, 31, tzinfo=UTC)),
    ],
)
async def test_a_document_is_read_as_it_was_written(
    serializer: Serializer[Any], deserializer: Deserializer[Any], value: Any
) -> None:
    written = await serializer.serialize(value, PLACE)
    assert written is not None
    assert await deserializer.deserialize(written, PLACE) == value


async def test_json_is_compact_and_utf_8() -> None:
    assert await JsonSerializer().serialize({"a": "ü", "b": 1}, PLACE) == '{"a":"ü","b":1}'.encode()


@pytest.mark.parametrize("value", [object(), {"a": {1, 2}}, "\ud800"])
async def test_a_value_that_the_format_does_not_have_is_refused(value: Any) -> None:
    for serializer in (JsonSerializer(), MessagePackSerializer()):
        with pytest.raises(SerializationError):
            await serializer.serialize(value, PLACE)


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe", b"[" * 100_000, b"\xdd\xff\xff\xff\xff", b"\x91" * 100_000 + b"\xc0"]
)
async def test_bytes_that_are_no_document_are_refused(data: bytes) -> None:
    for deserializer in (JsonDeserializer(), MessagePackDeserializer()):
        with pytest.raises(SerializationError):
            await deserializer.deserialize(data, PLACE)
