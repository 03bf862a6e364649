"""Keys and values of acquired records are deserialized; a failure names the record, which can then be acknowledged."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog import ShareRecord
from oncelog.consumer.deserializing import Deserializing
from oncelog.consumer.records import CREATE_TIME, ConsumerRecord
from oncelog.serialization import (
    Deserializer,
    RecordDeserializationError,
    RegistryUnavailable,
    SerializationContext,
    SerializationError,
    StringDeserializer,
)
from oncelog.share.share_deserializing import deserialized
from oncelog_protocol.messages.share_fetch import AcknowledgeType

said: list[tuple[int, AcknowledgeType]] = []


class Numbers(Deserializer[int]):
    """Deserializes digits, or raises `error`."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def deserialize(self, data: bytes, context: SerializationContext) -> int:
        if self.error is not None:
            raise self.error
        return int(data)


def acquired(value: bytes | None) -> ShareRecord:
    record = ConsumerRecord("jobs", 3, 7, 1, CREATE_TIME, b"k", value, [], 0)
    return ShareRecord(record, 2, lambda record, kind: said.append((record.offset, kind)))


async def test_key_and_value_are_deserialized_and_none_is_kept() -> None:
    wanted = Deserializing(StringDeserializer(), Numbers())
    record = await deserialized(acquired(b"12"), wanted)
    assert (record.key, record.value, record.offset, record.delivery_count) == ("k", 12, 7, 2)
    assert (await deserialized(acquired(None), wanted)).value is None


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SerializationError("no number"), "jobs-3, offset 7: no number"),
        (KeyError("field"), "jobs-3, offset 7: KeyError: 'field'"),
    ],
)
async def test_a_failure_names_the_record_which_can_be_rejected(error: Exception, text: str) -> None:
    raw = acquired(b"x")
    with pytest.raises(RecordDeserializationError) as raised:
        await deserialized(raw, Deserializing(None, Numbers(error)))
    assert str(raised.value) == text
    assert raised.value.record is raw
    assert raised.value.__cause__ is error
    said.clear()
    raised.value.record.reject()
    assert said == [(7, AcknowledgeType.REJECT)]


async def test_a_registry_that_does_not_answer_is_no_failure_of_the_record() -> None:
    error = RegistryUnavailable("no answer")
    with pytest.raises(RegistryUnavailable) as raised:
        await deserialized(acquired(b"1"), Deserializing(None, Numbers(error)))
    assert raised.value is error


@pytest.mark.parametrize("wrong", [int, "int", object()])
def test_only_deserializers_are_accepted(wrong: Any) -> None:
    from oncelog import ShareConsumer
    from oncelog.errors import ConfigError

    with pytest.raises(ConfigError, match="a deserializer must be a Deserializer"):
        ShareConsumer("127.0.0.1:9092", group_id="g", value_deserializer=wrong)
