"""Serializers, partitioner, interceptors and counters of a producer."""

from __future__ import annotations

import asyncio
import logging
import zlib
from typing import Any

import pytest
from tests.support.fake_transactions import FakeCoordinator
from tests.support.transactional_producers import ends, started

from oncelog import Producer, ProducerInterceptor
from oncelog.errors import ConfigError, KafkaError
from oncelog.serialization import (
    JsonSerializer,
    NumberSerializer,
    SerializationError,
    StringDeserializer,
    StringSerializer,
)
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse


async def test_keys_and_values_are_serialized_and_a_tombstone_stays_one(fake_broker: Any) -> None:
    async with Producer(
        fake_broker.address, key_serializer=StringSerializer(), value_serializer=JsonSerializer()
    ) as producer:
        await producer.send_and_wait("topic", {"id": 7}, key="k")
        await producer.send_and_wait("topic", None, key="k")
    assert [(record.key, record.value) for record in fake_broker.records()] == [(b"k", b'{"id":7}'), (b"k", None)]


async def test_a_value_that_cannot_be_serialized_is_not_sent(fake_broker: Any) -> None:
    async with Producer(
        fake_broker.address, key_serializer=NumberSerializer("integer"), value_serializer=StringSerializer()
    ) as producer:
        with pytest.raises(SerializationError, match="the value of a record for 'topic': a str is needed"):
            await producer.send("topic", 7)  # type: ignore[arg-type]
        with pytest.raises(SerializationError, match="the key of a record for 'topic'"):
            await producer.send("topic", "v", key=2**40)
        await producer.send_and_wait("topic", "v", key=1)
    assert [record.value for record in fake_broker.records()] == [b"v"]


async def test_a_function_chooses_the_partition_unless_one_is_named(fake_broker: Any) -> None:
    fake_broker.topics["topic"] = 5
    asked: list[Any] = []

    def by_crc(key: bytes | None, partitions: list[int], available: list[int]) -> int:
        asked.append((key, partitions, available))
        return zlib.crc32(key or b"") % len(partitions)

    async with Producer(fake_broker.address, key_serializer=StringSerializer(), partitioner=by_crc) as producer:
        places = [(await producer.send_and_wait("topic", b"v", key=key)).partition for key in ("a", "b", None)]
        named = (await producer.send_and_wait("topic", b"v", key="a", partition=4)).partition
    assert places == [zlib.crc32(key) % 5 for key in (b"a", b"b", b"")]
    assert named == 4
    assert asked[0] == (b"a", [0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    assert len(asked) == 3


@pytest.mark.parametrize(("choice", "error"), [(5, ValueError), (-1, ValueError), ("0", TypeError), (None, TypeError)])
async def test_a_partition_that_does_not_exist_is_refused(
    fake_broker: Any, choice: Any, error: type[Exception]
) -> None:
    async with Producer(fake_broker.address, partitioner=lambda *_: choice) as producer:
        with pytest.raises(error, match="the partitioner returned"):
            await producer.send("topic", b"v")


class Hook(ProducerInterceptor):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_send(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        self.seen.append((topic, partition, key, value))
        raise RuntimeError("a hook that fails")

    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
        self.seen.append(metadata.offset if error is None else type(error).__name__)


async def test_interceptors_see_what_is_sent_and_acknowledged_and_may_fail(
    fake_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Hook()
    with caplog.at_level(logging.ERROR, "oncelog"):
        async with Producer(
            fake_broker.address, value_serializer=StringSerializer(), interceptors=[hook], linger_ms=0
        ) as producer:
            await producer.send_and_wait("topic", "a", key=b"k")
            await asyncio.sleep(0)
            assert hook.seen == [("topic", 0, b"k", b"a"), 0]
    assert "an interceptor has failed: Hook" in caplog.text


async def test_the_counters_tell_what_was_sent_and_what_failed(fake_broker: Any) -> None:
    producer = Producer(fake_broker.address, linger_ms=0)
    assert producer.metrics()["record-send-total"] == 0
    async with producer:
        await producer.send_and_wait("topic", b"v")
        metrics = producer.metrics()
        assert (metrics["record-send-total"], metrics["record-error-total"], metrics["request-total"]) == (1, 0, 1)
        assert metrics["outgoing-byte-total"] > 60
        assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
        assert metrics["connection-count"] >= 1
        response = ProduceResponse.TopicProduceResponse.PartitionProduceResponse(
            index=0, error_code=ErrorCode.MESSAGE_TOO_LARGE, base_offset=-1, log_append_time_ms=-1, log_start_offset=0
        )
        answer = ProduceResponse(
            responses=[ProduceResponse.TopicProduceResponse(name="topic", partition_responses=[response])]
        )

        async def refuse(_: Any) -> Any:
            return answer

        fake_broker.handlers[ProduceRequest] = refuse
        with pytest.raises(KafkaError):
            await producer.send_and_wait("topic", b"v")
        assert producer.metrics()["record-error-total"] == 1


@pytest.mark.parametrize(
    "options",
    [
        {"value_serializer": str.encode},
        {"key_serializer": StringDeserializer()},
        {"partitioner": 7},
        {"interceptors": [object()]},
    ],
)
def test_what_is_no_serializer_partitioner_or_interceptor_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Producer("127.0.0.1:9", **options)


async def test_a_record_that_cannot_be_serialized_leaves_its_transaction_only_the_abort(
    coordinator: FakeCoordinator,
) -> None:
    async with started(coordinator, value_serializer=StringSerializer()) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", "v")
        with pytest.raises(SerializationError):
            await producer.send("topic", 7)
        with pytest.raises(KafkaError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("topic", "v")
    assert ends(coordinator) == [False, True]
