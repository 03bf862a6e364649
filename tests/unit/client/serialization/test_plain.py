from typing import Any
from uuid import UUID

import pytest

from oncelog.serialization import (
    BytesDeserializer,
    BytesSerializer,
    Deserializer,
    NumberDeserializer,
    NumberSerializer,
    PerTopicDeserializer,
    PerTopicSerializer,
    SerializationContext,
    SerializationError,
    Serializer,
    StringDeserializer,
    StringSerializer,
    UuidDeserializer,
    UuidSerializer,
)

PLACE = SerializationContext("orders")


@pytest.mark.parametrize(
    ("serializer", "deserializer", "value", "written"),
    [
        (StringSerializer(), StringDeserializer(), "grün", "grün".encode()),
        (StringSerializer("latin-1"), StringDeserializer("latin-1"), "grün", b"gr\xfcn"),
        (BytesSerializer(), BytesDeserializer(), b"\0", b"\0"),
        (NumberSerializer("integer"), NumberDeserializer("integer"), -2, b"\xff\xff\xff\xfe"),
        (NumberSerializer("long"), NumberDeserializer("long"), 1, b"\0\0\0\0\0\0\0\1"),
        (NumberSerializer("short"), NumberDeserializer("short"), 1, b"\0\1"),
        (NumberSerializer("double"), NumberDeserializer("double"), 1.0, b"\x3f\xf0\0\0\0\0\0\0"),
        (UuidSerializer(), UuidDeserializer(), UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
    ],
)
async def test_values_are_written_as_java_writes_them(
    serializer: Serializer[Any], deserializer: Deserializer[Any], value: Any, written: bytes
) -> None:
    assert await serializer.serialize(value, PLACE) == written
    assert await deserializer.deserialize(written, PLACE) == value


@pytest.mark.parametrize(
    ("serializer", "value"),
    [
        (StringSerializer(), b"bytes"),
        (StringSerializer("ascii"), "ü"),
        (BytesSerializer(), "text"),
        (NumberSerializer("integer"), 2**31),
        (NumberSerializer("integer"), "1"),
        (UuidSerializer(), "1"),
    ],
)
async def test_a_value_of_another_type_is_refused(serializer: Serializer[Any], value: Any) -> None:
    with pytest.raises(SerializationError):
        await serializer.serialize(value, PLACE)


@pytest.mark.parametrize("deserializer", [StringDeserializer(), NumberDeserializer("long"), UuidDeserializer()])
async def test_bytes_of_another_type_are_refused(deserializer: Deserializer[Any]) -> None:
    with pytest.raises(SerializationError):
        await deserializer.deserialize(b"\xff", PLACE)


async def test_each_topic_has_its_serializer() -> None:
    serializer = PerTopicSerializer({"names": StringSerializer(), "counts": NumberSerializer("integer")})
    deserializer = PerTopicDeserializer({"names": StringDeserializer()}, NumberDeserializer("integer"))
    assert await serializer.serialize("a", SerializationContext("names")) == b"a"
    assert await serializer.serialize(1, SerializationContext("counts")) == b"\0\0\0\1"
    assert await deserializer.deserialize(b"a", SerializationContext("names")) == "a"
    assert await deserializer.deserialize(b"\0\0\0\1", SerializationContext("counts")) == 1
    with pytest.raises(SerializationError, match="'other', and no default"):
        await serializer.serialize("a", SerializationContext("other"))
