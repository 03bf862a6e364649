"""What Fetch requests say: sessions (KIP-227), racks and nearer replicas (KIP-392)."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.cluster import TopicPartition
from oncelog.consumer.consumer import Consumer
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.messages.metadata import MetadataResponse
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

T = TopicPartition("topic", 0)
SESSION = 77
FOLLOWER = 2


def batch(value: bytes) -> bytearray:
    return build_batch([Record(0, 1, None, value, [])])


async def value(consumer: Consumer) -> bytes | None:
    while True:
        for records in (await consumer.poll(2000)).values():
            (record,) = records
            return record.value


def with_sessions(broker: Any, *refusals: int) -> None:
    """A broker that keeps one session; the first incremental requests are refused with `refusals`."""
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
    """A second node that the cluster has, and the leader says is nearer."""
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

    fake_broker.handlers[MetadataRequest] = metadata
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


async def test_what_the_follower_refuses_is_asked_of_the_leader(
    fake_broker: Any, follower: Any, fast: dict[str, int]
) -> None:
    """Offset out of range on a follower that lags behind is no reason to reset."""
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
