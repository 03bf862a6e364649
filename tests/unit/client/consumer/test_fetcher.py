"""The content of Fetch requests: sessions (KIP-227), racks and nearer replicas (KIP-392)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from oncelog.cluster import TopicPartition
from oncelog.consumer.consumer import Consumer
from oncelog.errors import AuthorizationFailed, CorruptRecords, KafkaError, OffsetOutOfRange
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.messages.metadata import MetadataResponse
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record

T = TopicPartition("topic", 0)
SESSION = 77
FOLLOWER = 2

FetchData = FetchResponse.FetchableTopicResponse.PartitionData


def batch(value: bytes, base_offset: int = 0) -> bytearray:
    return build_batch([Record(0, 1, None, value, [])], base_offset=base_offset)


async def value(consumer: Consumer) -> bytes | None:
    while True:
        for records in (await consumer.poll(2000)).values():
            (record,) = records
            return record.value


def with_sessions(broker: Any, *refusals: int) -> None:
    """Make the broker keep one fetch session; the first incremental requests are refused with the error codes in
    `refusals`.
    """
    left = list(refusals)
    known: dict[str, Any] = {}

    async def fetch(request: FetchRequest) -> FetchResponse:
        if request.session_epoch > 0:
            if left:
                return FetchResponse(error_code=left.pop(0), responses=[])
            for topic in request.topics:
                known[topic.topic] = topic
            request.topics = list(known.values())
        else:
            known.clear()
            known.update({topic.topic: topic for topic in request.topics})
        response: FetchResponse = await broker.on_fetch(request)
        response.session_id = SESSION
        return response

    broker.handlers[FetchRequest] = fetch


async def test_a_session_is_made_used_and_closed(fake_broker: Any, fast: dict[str, int]) -> None:
    with_sessions(fake_broker)
    async with Consumer(fake_broker.address, auto_offset_reset="earliest", client_rack="r1", **fast) as consumer:
        consumer.assign([T])
        for number in range(3):
            fake_broker.append(batch(b"%d" % number))
            assert await value(consumer) == b"%d" % number
    requests = fake_broker.requests_of(FetchRequest)
    assert [(request.session_id, request.session_epoch) for request in requests[:3]] == [
        (0, 0),
        (SESSION, 1),
        (SESSION, 2),
    ]
    assert {request.rack_id for request in requests} == {"r1"}


@pytest.mark.parametrize("code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
async def test_a_lost_session_is_made_again(fake_broker: Any, fast: dict[str, int], code: ErrorCode) -> None:
    with_sessions(fake_broker, code)
    async with Consumer(fake_broker.address, auto_offset_reset="earliest", **fast) as consumer:
        consumer.assign([T])
        for number in range(3):
            fake_broker.append(batch(b"%d" % number))
            assert await value(consumer) == b"%d" % number
    named = [(request.session_id, request.session_epoch) for request in fake_broker.requests_of(FetchRequest)]
    again = 0 if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND else SESSION
    assert named[:3] == [(0, 0), (SESSION, 1), (again, 0)]


@pytest.fixture
async def follower(fake_broker: Any) -> Any:
    """A second node of the cluster, which the leader names as the preferred read replica."""
    other = type(fake_broker)()
    await other.start()

    def metadata(request: Any) -> MetadataResponse:
        response: MetadataResponse = fake_broker.on_metadata(request)
        node = MetadataResponse.MetadataResponseBroker(node_id=FOLLOWER, host="127.0.0.1", port=other.port)
        response.brokers.append(node)
        return response

    async def lead(request: FetchRequest) -> FetchResponse:
        response: FetchResponse = fake_broker.fetched(request)
        response.responses[0].partitions[0].records = None
        response.responses[0].partitions[0].preferred_read_replica = FOLLOWER
        return response

    from oncelog_protocol.messages.metadata import MetadataRequest

    fake_broker.handlers[MetadataRequest] = other.handlers[MetadataRequest] = metadata
    fake_broker.handlers[FetchRequest] = lead
    yield other
    await other.stop()


async def test_the_replica_that_the_leader_names_is_read(fake_broker: Any, follower: Any, fast: dict[str, int]) -> None:
    for broker in (fake_broker, follower):
        broker.append(batch(b"0"))
    async with Consumer(fake_broker.address, auto_offset_reset="earliest", client_rack="near", **fast) as consumer:
        consumer.assign([T])
        assert await value(consumer) == b"0"
        for broker in (fake_broker, follower):
            broker.append(batch(b"1"))
        assert await value(consumer) == b"1"
    assert len(fake_broker.requests_of(FetchRequest)) == 1
    assert len(follower.requests_of(FetchRequest)) >= 2


@pytest.mark.virtual_time
@pytest.mark.parametrize("iterates", [False, True])
async def test_e54_a_nearer_replica_that_hangs_is_left_for_the_leader(
    fake_broker: Any, follower: Any, iterates: bool
) -> None:
    """The leader keeps naming this replica as the nearest one."""
    redirect = fake_broker.handlers[FetchRequest]

    async def lead(request: FetchRequest) -> FetchResponse:
        response: FetchResponse = await (redirect(request) if request.rack_id else fake_broker.on_fetch(request))
        return response

    fake_broker.handlers[FetchRequest] = lead
    for broker in (fake_broker, follower):
        broker.append(batch(b"0"))
    loop = asyncio.get_running_loop()
    async with Consumer(fake_broker.address, auto_offset_reset="earliest", client_rack="near") as consumer:
        consumer.assign([T])
        assert await value(consumer) == b"0"
        goes_on = asyncio.Event()

        async def hang(request: FetchRequest) -> Any:
            await goes_on.wait()
            return await follower.on_fetch(request)

        follower.handlers[FetchRequest] = hang
        fake_broker.append(batch(b"1"))
        began = loop.time()
        found = (await anext(consumer)).value if iterates else await value(consumer)
        assert found == b"1"
        assert loop.time() - began < 4
        goes_on.set()


async def test_a_fetch_refused_by_the_follower_goes_to_the_leader(
    fake_broker: Any, follower: Any, fast: dict[str, int]
) -> None:
    """An offset that is out of range on a lagging follower must not reset the consumer."""
    fake_broker.append(batch(b"0"))
    asked = 0

    async def lead_at_last(request: FetchRequest) -> FetchResponse:
        nonlocal asked
        asked += 1
        response: FetchResponse = fake_broker.fetched(request)
        if asked == 1:
            response.responses[0].partitions[0].records = None
            response.responses[0].partitions[0].preferred_read_replica = FOLLOWER
        return response

    def refuse(request: FetchRequest) -> FetchResponse:
        response: FetchResponse = follower.fetched(request)
        response.responses[0].partitions[0].error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return response

    fake_broker.handlers[FetchRequest] = lead_at_last
    follower.handlers[FetchRequest] = refuse
    async with Consumer(fake_broker.address, auto_offset_reset="none", **fast) as consumer:
        consumer.assign([T])
        consumer.seek(T, 0)
        assert await value(consumer) == b"0"


BACKOFF_S = 0.02
PATIENCE_S = 0.8 * BACKOFF_S * (1 + 2 + 4 + 8)
"""Seconds that four backoffs take at least, if each is 20 % shorter."""


def answered(topic: str, partition: int, **data: Any) -> FetchResponse:
    part = FetchData(**{"partition_index": partition, "error_code": 0, "high_watermark": 10, **data})
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic=topic, partitions=[part])])


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (answered("topic", 0), None),  # an immediate empty response
        (answered("topic", 7), None),  # a response with a partition that was not requested
        (FetchResponse(responses=[]), None),
        (answered("topic", 0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER), None),
        (answered("topic", 0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE), None),
        (answered("topic", 0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED), AuthorizationFailed),
        (answered("topic", 0, error_code=-1), KafkaError),
        (answered("topic", 0, records=bytes(batch(b"below"))), CorruptRecords),
        (answered("topic", 0, records=b"no batch"), CorruptRecords),
    ],
)
async def test_useless_metadata_refreshes_become_less_frequent(
    fake_broker: Any, answer: FetchResponse, error: type[KafkaError] | None
) -> None:
    """The application polls as fast as it can."""
    errors = await errors_of_five_answers(fake_broker, lambda request: answer)
    assert errors == (set() if error is None else {error})


async def test_damaged_records_are_fetched_less_and_less_often(fake_broker: Any) -> None:
    """The consumer detects the damage only when it reads the records, and has fetched further records by then."""
    damaged = answered("topic", 0, records=bytes(batch(b"damaged", base_offset=5)[:-1]) + b"\xff")
    behind = asyncio.Event()

    async def answer(request: FetchRequest) -> FetchResponse:
        if request.topics[0].partitions[0].fetch_offset == 5:
            return damaged
        fake_broker.requests.remove(request)
        await behind.wait()
        return answered("topic", 0)

    asyncio.get_running_loop().call_later(PATIENCE_S / 4, behind.set)
    assert await errors_of_five_answers(fake_broker, answer) == {CorruptRecords}


async def errors_of_five_answers(fake_broker: Any, answer: Callable[[FetchRequest], Any]) -> set[type]:
    """Poll until the fifth request for offset 5 arrives; check that it does not arrive too early, and return the types
    of errors that the polls raised.
    """
    fake_broker.handlers[FetchRequest] = answer
    options: dict[str, Any] = {"retry_backoff_ms": BACKOFF_S * 1000, "retry_backoff_max_ms": 10_000}
    options = {key: int(value) for key, value in options.items()}
    errors: set[type] = set()
    async with Consumer(fake_broker.address, auto_offset_reset="earliest", **options) as consumer:
        consumer.assign([T])
        consumer.seek(T, 5)
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def poll() -> None:
            while True:
                try:
                    assert await consumer.poll(10) == {}
                except KafkaError as raised:
                    errors.add(type(raised))

        polling = asyncio.ensure_future(poll())
        await fake_broker.received(FetchRequest, 5)
        assert loop.time() - began >= PATIENCE_S
        polling.cancel()
        await asyncio.wait([polling])
    return errors


async def test_a_log_that_is_always_out_of_range_is_an_error_in_the_end(fake_broker: Any, fast: dict[str, int]) -> None:
    fake_broker.handlers[FetchRequest] = lambda _: answered("topic", 0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    async with Consumer(fake_broker.address, auto_offset_reset="earliest", **fast) as consumer:
        consumer.assign([T])
        with pytest.raises(OffsetOutOfRange, match="after 10 resets in a row"):
            await consumer.poll(10_000)


async def test_an_answer_that_cannot_be_read_is_an_error_of_its_partition(
    fake_broker: Any, fast: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("who knows")

    fake_broker.append(batch(b"v"))
    async with Consumer(fake_broker.address, auto_offset_reset="earliest", **fast) as consumer:
        consumer.assign([T])
        with monkeypatch.context() as patched:
            patched.setattr("oncelog.consumer.fetcher.FetchedPartition", broken)
            with pytest.raises(KafkaError, match="ZeroDivisionError"):
                await consumer.poll(10_000)
        assert await value(consumer) == b"v"


async def test_a_batch_that_is_too_large_when_unpacked_follows_the_setting(
    fake_broker: Any, fast: dict[str, int]
) -> None:
    fake_broker.append(build_batch([Record(0, 1, None, bytes(10_000), [])], compression=Compression.ZSTD))
    for limit, is_read in ((9_000, False), (11_000, True)):
        options = {"auto_offset_reset": "earliest", "max_decompressed_bytes": limit, **fast}
        async with Consumer(fake_broker.address, **options) as consumer:
            consumer.assign([T])
            if is_read:
                assert await value(consumer) == bytes(10_000)
            else:
                with pytest.raises(CorruptRecords, match="is unreadable"):
                    await consumer.poll(10_000)
