"""Tests that ranges of offsets are read from a live broker as columns: each read returns the same records, and no other
records.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from oncelog import Admin, ColumnBatch, Consumer, NewTopic, Producer, TopicPartition
from oncelog_pipeline.source.data_loss import DataLoss
from oncelog_pipeline.source.kept_consumers import MAX_IDLE, KeptConsumers
from oncelog_pipeline.source.ranges import OffsetRange, cut
from oncelog_pipeline.source.reading import NothingRead, read_range

SETTINGS: dict[str, Any] = {"isolation_level": "read_committed"}
HEADERS = [("h", b"1"), ("none", None)]


async def create(address: str, topic: str) -> TopicPartition:
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
    return TopicPartition(topic, 0)


async def read(address: str, wanted: OffsetRange, **options: Any) -> list[ColumnBatch]:
    options = {"poll_timeout_ms": 60_000, "settings": SETTINGS} | options
    return [
        columns
        async for batches in read_range(address, wanted, **options)
        for batch in batches
        if (columns := batch.decoded()) is not None
    ]


def values(batches: list[ColumnBatch]) -> list[bytes | None]:
    return [value for batch in batches for value in batch.values]


async def test_columns_equal_the_records(address: str, topic: str) -> None:
    """Keys, headers, tombstones and timestamps in the columns are those of the records that `poll` returns."""
    partition = await create(address, topic)
    async with Producer(address) as producer:
        for number in range(50):
            value = None if number % 7 == 0 else b"v%d" % number
            key = None if number % 3 == 0 else b"k%d" % number
            headers = HEADERS if number % 5 == 0 else ()
            await producer.send(topic, value, key, timestamp_ms=1000 + number, headers=headers)
    records = []
    async with Consumer(address, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        while len(records) < 50:
            records += (await consumer.poll(1000)).get(partition, [])
    batches = await read(address, OffsetRange(topic, 0, 0, 50))
    rows = [
        row
        for batch in batches
        for row in zip(batch.offsets, batch.timestamps_ms, batch.keys, batch.values, batch.headers, strict=True)
    ]
    assert [tuple(map(list, row[4])) for row in rows if row[4]]
    assert rows == [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in records]
    assert {batch.timestamp_type for batch in batches} == {0}


async def test_polls_of_records_and_of_columns_go_on_from_one_another(address: str, topic: str) -> None:
    partition = await create(address, topic)
    async with Producer(address, linger_ms=1000) as producer:
        for number in range(30):
            await producer.send(topic, b"%d" % number)
    seen: list[bytes | None] = []
    async with Consumer(address, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        while len(seen) < 7:
            seen += [record.value for record in (await consumer.poll(1000, max_records=7)).get(partition, ())]
        while len(seen) < 30:
            seen += values((await consumer.poll_columns(1000)).get(partition, []))
        assert await consumer.position(partition) == 30
    assert seen == [b"%d" % number for number in range(30)]


async def test_a_range_ends_at_its_end_whatever_is_there(address: str, topic: str) -> None:
    """The ranges include aborted records, markers, and ends in the middle of a batch; however the log is cut into
    ranges, every record is read once.
    """
    await create(address, topic)
    async with Producer(address, transactional_id=uuid.uuid4().hex) as producer:
        for commits in (True, False, True, False):
            producer.begin_transaction()
            for number in range(10):
                await producer.send(topic, b"%d %d" % (commits, number))
            await producer.flush()  # send all records first, because an abort would drop unsent records
            await (producer.commit_transaction() if commits else producer.abort_transaction())
    end = 44
    everything = [b"1 %d" % number for number in range(10)] * 2
    for pieces in (1, 7, end):
        ranges = cut({TopicPartition(topic, 0): 0}, {TopicPartition(topic, 0): end}, min_partitions=pieces)
        if pieces == end:
            ranges = ranges[8:14]  # test only the ranges that begin or end near the first marker, to save time
        found = [value for each in ranges for value in values(await read(address, each))]
        assert found == (everything if pieces < end else [b"1 8", b"1 9"])
    assert values(await read(address, OffsetRange(topic, 0, 33, end))) == []
    dirty = await read(address, OffsetRange(topic, 0, 0, end), settings={})
    assert len(values(dirty)) == 40


async def test_deleted_records_fail_the_query_or_are_skipped(address: str, topic: str) -> None:
    partition = await create(address, topic)
    async with Producer(address, linger_ms=0) as producer:
        for number in range(10):
            await producer.send_and_wait(topic, b"%d" % number)
    async with Admin(address) as admin:
        await admin.delete_records({partition: 4})
    with pytest.raises(DataLoss, match="the log begins at 4"):
        await read(address, OffsetRange(topic, 0, 2, 10))
    rest = await read(address, OffsetRange(topic, 0, 2, 6), fails_on_data_loss=False)
    assert values(rest) == [b"4", b"5"]
    assert await read(address, OffsetRange(topic, 0, 0, 3), fails_on_data_loss=False) == []


async def test_an_open_transaction_before_the_end_is_told(address: str, topic: str) -> None:
    await create(address, topic)
    async with Producer(address, transactional_id=uuid.uuid4().hex) as producer:
        producer.begin_transaction()
        await producer.send_and_wait(topic, b"open")
        with pytest.raises(NothingRead, match="no transaction open"):
            await read(address, OffsetRange(topic, 0, 0, 1), poll_timeout_ms=300)
        await producer.commit_transaction()
    assert values(await read(address, OffsetRange(topic, 0, 0, 1))) == [b"open"]


async def send_numbers(address: str, topic: str, count: int, *, first: int = 0) -> None:
    async with Producer(address, batch_size=200) as producer:
        for number in range(first, first + count):
            await producer.send(topic, b"%d" % number)


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The client ids of all consumers that are started."""
    found: list[str] = []
    start = Consumer.start

    async def started(self: Consumer) -> None:
        found.append(self.config.client_id)
        await start(self)

    monkeypatch.setattr(Consumer, "start", started)
    return found


async def test_ranges_one_after_another_are_read_by_one_consumer(
    address: str, topic: str, connected: list[str]
) -> None:
    """The log continues after each range, and the ranges of two topics alternate."""
    topics = [topic, f"{topic}-other"]
    for name in topics:
        await create(address, name)
        await send_numbers(address, name, 100)
    consumers = KeptConsumers()
    for start, end in ((0, 40), (40, 70), (0, 40), (99, 100), (10, 11)):
        for name in topics:
            found = values(await read(address, OffsetRange(name, 0, start, end), consumers=consumers))
            assert found == [b"%d" % number for number in range(start, end)]
    assert len(connected) == 1
    await consumers.close()


async def test_a_topic_that_was_created_again_is_read_by_the_same_consumer(address: str, topic: str) -> None:
    consumers = KeptConsumers()
    for first in (0, 100):
        await create(address, topic)
        await send_numbers(address, topic, 10, first=first)
        found = values(await read(address, OffsetRange(topic, 0, 0, 10), consumers=consumers))
        assert found == [b"%d" % number for number in range(first, first + 10)]
        async with Admin(address) as admin:
            await admin.delete_topics([topic])
    await consumers.close()


async def test_a_consumer_of_a_range_that_was_not_read_to_its_end_is_not_used_again(
    address: str, topic: str, connected: list[str]
) -> None:
    await create(address, topic)
    await send_numbers(address, topic, 100)
    consumers = KeptConsumers()
    with pytest.raises(NothingRead):
        await read(address, OffsetRange(topic, 0, 100, 101), poll_timeout_ms=300, consumers=consumers)
    reading = read_range(
        address, OffsetRange(topic, 0, 0, 1000), poll_timeout_ms=60_000, settings=SETTINGS, consumers=consumers
    )
    await anext(reading)
    await reading.aclose()  # as with limit(1)
    assert len(values(await read(address, OffsetRange(topic, 0, 0, 100), consumers=consumers))) == 100
    assert len(connected) == 3
    await consumers.close()


async def test_consumers_of_other_settings_are_kept_apart_and_few(
    address: str, topic: str, connected: list[str]
) -> None:
    await create(address, topic)
    await send_numbers(address, topic, 10)
    consumers = KeptConsumers()
    names = [f"reader-{number}" for number in range(MAX_IDLE + 1)]
    for name in (*names, names[-1], names[0]):  # the first one is closed when the last one is kept
        settings = SETTINGS | {"client_id": name}
        found = values(await read(address, OffsetRange(topic, 0, 0, 10), settings=settings, consumers=consumers))
        assert len(found) == 10
    assert connected == [*names, names[0]]
    await consumers.close()
