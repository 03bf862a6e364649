"""A share consumer with deserializers on a live broker: a record that cannot be deserialized is reported once for each
delivery, and is then rejected, released, or released by default; no other record is lost or held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from broker_process import BrokerProcess

from oncelog import Admin, NewTopic, Producer, ShareConsumer, ShareRecord, TopicPartition
from oncelog.admin import AlterConfig, ConfigResource
from oncelog.errors import KafkaError
from oncelog.serialization import (
    Deserializer,
    RecordDeserializationError,
    RegistryUnavailable,
    SerializationContext,
    SerializationError,
    StringDeserializer,
)

TIMEOUT_SECONDS = 60.0
QUICK = {"group.share.min.record.lock.duration.ms": "500", "group.share.assignment.interval.ms": "100"}
LIMIT = 3
"""The group's limit of deliveries of a record."""
MODES = pytest.mark.parametrize("mode", ["implicit", "explicit"])


class Numbers(Deserializer[int]):
    """Deserializes digits. `error` is raised once."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    async def deserialize(self, data: bytes, context: SerializationContext) -> int:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        try:
            return int(data)
        except ValueError:
            raise SerializationError(f"{data!r} is not a number") from None


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("shares") / "data", QUICK)
    with process:
        yield process
    assert "Traceback" not in process.log.read_text()


async def prepare(broker: BrokerProcess, topic: str, group: str, *values: bytes) -> None:
    """Create a topic with these values, in one batch, and a share group that reads it from the beginning."""
    configs = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": str(LIMIT)}
    async with Admin(broker.address) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1)])
        changes = [AlterConfig(key, value) for key, value in configs.items()]
        await admin.incremental_alter_configs({ConfigResource.group(group): changes})
    async with Producer(broker.address, linger_ms=100) as producer:
        sent = [await producer.send(topic, value, key=b"k%d" % number) for number, value in enumerate(values)]
        await asyncio.gather(*sent)


def consumer_of(broker: BrokerProcess, group: str, mode: str, numbers: Numbers) -> ShareConsumer[str, int]:
    options: Any = {"share_acknowledgement_mode": mode}
    return ShareConsumer(
        broker.address, group_id=group, key_deserializer=StringDeserializer(), value_deserializer=numbers, **options
    )


async def next_of(consumer: ShareConsumer[str, int]) -> list[ShareRecord[str, int]]:
    """Poll until records arrive. Raises the error of a poll."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not (records := await consumer.poll(1_000)):
            pass
    return records


async def failure_of(consumer: ShareConsumer[str, int]) -> RecordDeserializationError:
    with pytest.raises(RecordDeserializationError) as raised:
        await next_of(consumer)
    return raised.value


async def until_done(broker: BrokerProcess, group: str, topic: str) -> None:
    """Wait until the group holds or lacks no record."""
    async with Admin(broker.address) as admin, asyncio.timeout(TIMEOUT_SECONDS):
        while (await admin.shares.offsets(group))[TopicPartition(topic, 0)].lag != 0:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.02)


@MODES
async def test_a_rejected_record_is_not_delivered_again_and_its_neighbours_are_delivered_once(
    broker: BrokerProcess, topic: str, group: str, mode: str
) -> None:
    await prepare(broker, topic, group, b"1", b"2", b"three", b"4")
    async with consumer_of(broker, group, mode, Numbers()) as consumer:
        consumer.subscribe([topic])
        first = await next_of(consumer)
        assert [(record.key, record.value) for record in first] == [("k0", 1), ("k1", 2)]
        for record in first:
            record.accept()
        error = await failure_of(consumer)
        assert str(error) == f"{topic}-0, offset 2: b'three' is not a number"
        assert (error.record.topic, error.record.partition, error.record.offset) == (topic, 0, 2)
        assert (error.record.key, error.record.value, error.record.delivery_count) == (b"k2", b"three", 1)
        error.record.reject()
        (last,) = await next_of(consumer)
        assert (last.value, last.delivery_count) == (4, 1)
        last.accept()
        assert set((await consumer.commit()).values()) == {None}
        await until_done(broker, group, topic)
        assert await consumer.poll(300) == []


@MODES
async def test_a_record_without_acknowledgement_is_released_up_to_the_limit_of_deliveries(
    broker: BrokerProcess, topic: str, group: str, mode: str
) -> None:
    """The implicit mode must not accept the record, which the application has not processed."""
    await prepare(broker, topic, group, b"one")
    async with consumer_of(broker, group, mode, Numbers()) as consumer:
        consumer.subscribe([topic])
        counts = [(await failure_of(consumer)).record.delivery_count for _ in range(LIMIT)]
        assert counts == list(range(1, LIMIT + 1))
        assert set((await consumer.commit()).values()) == {None}
        await until_done(broker, group, topic)
        assert await consumer.poll(300) == []


@MODES
async def test_another_member_gets_a_record_that_a_closed_consumer_could_not_deserialize(
    broker: BrokerProcess, topic: str, group: str, mode: str
) -> None:
    await prepare(broker, topic, group, b"one", b"2")
    async with consumer_of(broker, group, mode, Numbers()) as consumer:
        consumer.subscribe([topic])
        error = await failure_of(consumer)
    with pytest.raises(ValueError, match="acknowledged already"):
        error.record.reject()
    async with ShareConsumer(broker.address, group_id=group) as other:
        other.subscribe([topic])
        found: dict[int, tuple[bytes | None, int]] = {}
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while len(found) < 2:
                found |= {record.offset: (record.value, record.delivery_count) for record in await other.poll(1_000)}
    assert found == {0: (b"one", 2), 1: (b"2", 2)}


async def test_records_are_kept_while_the_registry_does_not_answer(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    await prepare(broker, topic, group, b"1")
    numbers = Numbers()
    numbers.error = RegistryUnavailable("no answer")
    async with consumer_of(broker, group, "explicit", numbers) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(RegistryUnavailable):
            await next_of(consumer)
        (record,) = await next_of(consumer)
        assert (record.value, record.delivery_count) == (1, 1)
        record.accept()
        assert set((await consumer.commit()).values()) == {None}
