import asyncio
from typing import Any

import pytest
from tests.support.fake_broker import SURELY_SECONDS

from oncelog.cluster import TopicPartition
from oncelog.consumer.consumer import Consumer
from oncelog.errors import AuthorizationFailed, ClientClosed, CorruptRecords, OffsetOutOfRange, RequestTimedOut
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.messages.list_offsets import ListOffsetsRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

T = TopicPartition("topic", 0)
FetchData = FetchResponse.FetchableTopicResponse.PartitionData


def batch(*values: bytes) -> bytearray:
    return build_batch([Record(0, 1, None, value, []) for value in values])


async def polled(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < count:
        for records in (await consumer.poll(timeout_ms=2000)).values():
            values += [record.value for record in records]
    return values


def refusing(broker: Any, *codes: int) -> None:
    """Let the next fetches fail with these error codes."""
    left = list(codes)

    async def fetch(request: Any) -> Any:
        if not left:
            return await broker.on_fetch(request)
        code = left.pop(0)
        data = FetchData(partition_index=0, error_code=code, high_watermark=-1, records=None)
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="topic", partitions=[data])])

    broker.handlers[FetchRequest] = fetch


async def test_a_consumer_reads_existing_and_new_records(fake_broker: Any) -> None:
    for number in range(5):
        fake_broker.append(batch(b"%d" % number))
    async with Consumer(fake_broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([T])
        assert await consumer.position(T) == 0
        assert await polled(consumer, 5) == [b"0", b"1", b"2", b"3", b"4"]
        fake_broker.append(batch(b"5", b"6"))
        assert await polled(consumer, 2) == [b"5", b"6"]
        assert await consumer.position(T) == 7


async def test_a_consumer_starts_at_the_latest_offset_by_default(fake_broker: Any) -> None:
    fake_broker.append(batch(b"old"))
    async with Consumer(fake_broker.address) as consumer:
        consumer.assign([T])
        assert await consumer.position(T) == 1
        fake_broker.append(batch(b"new"))
        assert await polled(consumer, 1) == [b"new"]


async def test_poll_returns_empty_in_time(fake_broker: Any) -> None:
    async with Consumer(fake_broker.address) as consumer:
        consumer.assign([T])
        assert await consumer.poll() == {}
        assert await consumer.poll(timeout_ms=10) == {}


async def test_a_poll_of_nothing_is_refused(fake_broker: Any) -> None:
    """A poll without any partition would return no record for ever."""
    async with Consumer(fake_broker.address, group_id="g") as consumer:
        refused = {"match": r"nothing is subscribed to or assigned: subscribe\(\[...\]\) or assign\(\[...\]\)"}
        polls = (consumer.poll, consumer.poll_columns, consumer.poll_undecoded, consumer.poll_headers)
        for reads in (*polls, consumer.__anext__):
            with pytest.raises(ValueError, **refused):
                await reads()
        consumer.assign([T])
        assert await consumer.poll() == {}
        consumer.assign([])
        with pytest.raises(ValueError, **refused):
            await consumer.poll()
        consumer.subscribe(["topic"])
        assert await consumer.poll() == {}  # before the group has assigned any partition, a poll raises no error either


async def test_poll_returns_no_more_than_asked_for(fake_broker: Any) -> None:
    fake_broker.append(batch(*(b"%d" % number for number in range(10))))
    async with Consumer(fake_broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([T])
        sizes = [len((await consumer.poll(2000, max_records=4))[T]) for _ in range(3)]
        assert sizes == [4, 4, 2]
        with pytest.raises(ValueError, match="max_records=0"):
            await consumer.poll(max_records=0)


async def test_a_consumer_seeks(fake_broker: Any) -> None:
    fake_broker.append(batch(*(b"%d" % number for number in range(10))))
    async with Consumer(fake_broker.address, auto_offset_reset="none", fetch_max_wait_ms=20) as consumer:
        consumer.assign([T])
        consumer.seek(T, 7)
        assert await polled(consumer, 3) == [b"7", b"8", b"9"]
        consumer.seek_to_beginning(T)
        assert await consumer.position(T) == 0
        consumer.seek_to_end()
        assert await consumer.position(T) == 10
        for offset in (-1, 2**63):
            with pytest.raises(ValueError, match=f"offset {offset}: must be from 0 to"):
                consumer.seek(T, offset)
        with pytest.raises(ValueError, match="other-0 is not assigned"):
            consumer.seek(TopicPartition("other", 0), 1)


async def test_a_seek_overtakes_the_fetch_under_way(fake_broker: Any) -> None:
    fake_broker.append(batch(b"0", b"1"))
    fetching, gate = asyncio.Event(), asyncio.Event()

    async def fetch(request: Any) -> Any:
        fetching.set()
        await gate.wait()
        return await fake_broker.on_fetch(request)

    fake_broker.handlers[FetchRequest] = fetch
    async with Consumer(fake_broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([T])
        polling = asyncio.ensure_future(consumer.poll(timeout_ms=2000))
        await fetching.wait()
        consumer.seek(T, 1)
        gate.set()
        assert [record.offset for record in (await polling)[T]] == [1]


async def test_iteration_continues_where_poll_left_off_and_back(fake_broker: Any) -> None:
    fake_broker.append(batch(*(b"%d" % number for number in range(6))))
    async with Consumer(fake_broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([T])
        seen = [record.offset for record in (await consumer.poll(2000, max_records=2))[T]]
        async for record in consumer:
            seen.append(record.offset)
            if record.offset == 3:
                break
        assert await consumer.position(T) == 4
        seen += [record.offset for record in (await consumer.poll(2000))[T]]
        assert seen == list(range(6))


async def test_iteration_ends_when_the_consumer_is_closed(fake_broker: Any) -> None:
    fake_broker.append(batch(b"0"))
    consumer = Consumer(fake_broker.address, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([T])
    first = asyncio.Event()
    seen = []

    async def read() -> None:
        async for record in consumer:
            first.set()
            seen.append(record.value)

    reading = asyncio.ensure_future(read())
    await first.wait()
    await consumer.close()
    await reading
    assert seen == [b"0"]
    with pytest.raises(ClientClosed):
        await consumer.poll()


async def test_paused_partitions_return_no_records(fake_broker: Any) -> None:
    fake_broker.append(batch(b"0"))
    async with Consumer(fake_broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([T])
        consumer.pause(T)
        assert consumer.paused() == {T}
        assert await consumer.poll(timeout_ms=20) == {}
        consumer.resume(T)
        assert await polled(consumer, 1) == [b"0"]


async def test_an_offset_out_of_range_without_reset_policy_is_an_error(fake_broker: Any) -> None:
    async with Consumer(fake_broker.address, auto_offset_reset="none") as consumer:
        consumer.assign([T])
        with pytest.raises(OffsetOutOfRange, match="topic-0 has no position"):
            await consumer.poll(timeout_ms=2000)
        with pytest.raises(OffsetOutOfRange, match="topic-0 has no position"):
            await consumer.position(T)
        consumer.seek(T, 100)
        with pytest.raises(OffsetOutOfRange, match="topic-0: offset 100 is out of range"):
            await consumer.poll(timeout_ms=2000)


async def test_an_offset_out_of_range_with_a_reset_policy_starts_over(fake_broker: Any) -> None:
    fake_broker.append(batch(b"0"))
    async with Consumer(fake_broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([T])
        consumer.seek(T, 100)
        assert await polled(consumer, 1) == [b"0"]


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR]
)
async def test_an_error_that_passes_is_not_seen(fake_broker: Any, fast: dict[str, int], code: ErrorCode) -> None:
    fake_broker.append(batch(b"0"))
    refusing(fake_broker, code, code)
    async with Consumer(fake_broker.address, auto_offset_reset="earliest", **fast) as consumer:
        consumer.assign([T])
        assert await polled(consumer, 1) == [b"0"]


async def test_an_error_that_stays_is_raised_and_may_be_tried_again(fake_broker: Any) -> None:
    fake_broker.append(batch(b"0"))
    refusing(fake_broker, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with Consumer(fake_broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([T])
        with pytest.raises(AuthorizationFailed, match="topic-0"):
            await consumer.poll(timeout_ms=2000)
        assert await polled(consumer, 1) == [b"0"]


async def test_damaged_records_are_reported_and_can_be_skipped(fake_broker: Any) -> None:
    bad = batch(b"bad")
    bad[-2] ^= 1
    for data in (batch(b"0"), bad, batch(b"2")):
        fake_broker.append(data)
    async with Consumer(fake_broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([T])
        assert await polled(consumer, 1) == [b"0"]
        with pytest.raises(CorruptRecords, match="CRC"):
            await consumer.poll(timeout_ms=2000)
        consumer.seek(T, 2)
        assert await polled(consumer, 1) == [b"2"]


@pytest.mark.parametrize("is_iterating", [False, True])
async def test_records_damaged_in_transit_are_reported_and_fetched_again(
    fake_broker: Any, fast: dict[str, int], is_iterating: bool
) -> None:
    """Records before the damaged batch are neither lost nor returned twice."""
    for number in range(3):
        fake_broker.append(batch(b"%d" % number))
    good = fake_broker.logs["topic", 0][1]
    fake_broker.logs["topic", 0][1] = good[:-2] + bytes([good[-2] ^ 1]) + good[-1:]
    async with Consumer(fake_broker.address, auto_offset_reset="earliest", **fast) as consumer:
        consumer.assign([T])

        async def some() -> list[bytes | None]:
            return [(await anext(consumer)).value] if is_iterating else await polled(consumer, 1)

        assert await some() == [b"0"]
        for _ in range(2):
            with pytest.raises(CorruptRecords, match="from offset 1 is unreadable: the CRC does not match"):
                await some()
        fake_broker.logs["topic", 0][1] = good
        values: list[bytes | None] = []
        async with asyncio.timeout(SURELY_SECONDS):
            while len(values) < 2:
                try:
                    values += await some()
                except CorruptRecords:
                    assert not values  # the response with the record had not arrived yet
        assert values == [b"1", b"2"]


async def test_a_broker_that_restarts_is_waited_for(fake_broker: Any, fast: dict[str, int]) -> None:
    fake_broker.append(batch(b"0"))
    async with Consumer(fake_broker.address, auto_offset_reset="earliest", **fast) as consumer:
        consumer.assign([T])
        assert await polled(consumer, 1) == [b"0"]
        await fake_broker.stop()
        assert await consumer.poll(timeout_ms=20) == {}
        fake_broker.append(batch(b"1"))
        await fake_broker.start()
        assert await polled(consumer, 1) == [b"1"]


async def test_a_topic_that_is_made_later_is_found(fake_broker: Any, fast: dict[str, int]) -> None:
    late = TopicPartition("late", 0)
    async with Consumer(fake_broker.address, auto_offset_reset="earliest", **fast) as consumer:
        consumer.assign([late])
        assert await consumer.poll(timeout_ms=10) == {}
        fake_broker.topics["late"] = 1
        fake_broker.append(batch(b"0"), "late")
        assert await polled(consumer, 1) == [b"0"]


async def test_the_next_fetch_is_under_way_while_records_are_worked_on(fake_broker: Any) -> None:
    for number in range(6):
        fake_broker.append(batch(b"%d" % number))
    async with Consumer(fake_broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([T])
        await consumer.poll(2000, max_records=1)
        fetches = 1
        while (await fake_broker.received(FetchRequest, fetches)).topics[0].partitions[0].fetch_offset <= 1:
            fetches += 1


async def test_offsets_of_partitions_are_looked_up(fake_broker: Any) -> None:
    fake_broker.append(batch(b"0", b"1"))
    async with Consumer(fake_broker.address, isolation_level="read_committed") as consumer:
        assert await consumer.beginning_offsets([T]) == {T: 0}
        assert await consumer.end_offsets([T]) == {T: 2}
        assert (await consumer.offsets_for_times({T: 5}))[T].offset == 2  # type: ignore[union-attr]
        assert await consumer.partitions_for("topic") == [0]
        for timestamp_ms in (-1, 2**70):
            with pytest.raises(ValueError, match=f"timestamp {timestamp_ms} must be from 0 to"):
                await consumer.offsets_for_times({T: timestamp_ms})
    assert {request.isolation_level for request in fake_broker.requests_of(ListOffsetsRequest)} == {1}


async def test_the_position_of_a_partition_that_does_not_exist_is_given_up_in_time(
    fake_broker: Any, fast: dict[str, int]
) -> None:
    missing = TopicPartition("topic", 9)
    async with Consumer(fake_broker.address, **{**fast, "default_api_timeout_ms": 50}) as consumer:
        consumer.assign([missing])
        with pytest.raises(RequestTimedOut, match=r"topic-9 has no position after default.api.timeout.ms=50"):
            await consumer.position(missing)


async def test_concurrent_polls_are_refused(fake_broker: Any) -> None:
    async with Consumer(fake_broker.address) as consumer:
        consumer.assign([T])
        polling = asyncio.ensure_future(consumer.poll(timeout_ms=2000))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task"):
            await consumer.poll()
        polling.cancel()
        await asyncio.wait([polling])
        assert await consumer.poll() == {}


async def test_close_ends_a_poll(fake_broker: Any) -> None:
    consumer = Consumer(fake_broker.address)
    with pytest.raises(ClientClosed, match="not started"):
        await consumer.poll()
    await consumer.start()
    consumer.assign([T])
    polling = asyncio.ensure_future(consumer.poll(timeout_ms=60_000))
    await asyncio.sleep(0.01)
    await consumer.close()
    await consumer.close()
    with pytest.raises(ClientClosed):
        await polling
