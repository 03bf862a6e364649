"""Any exception of a transport or its loop counts as a lost connection, and makes no record fail permanently (E55)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncelog.address import Address
from oncelog.cluster import TopicPartition
from oncelog.connection.transport import BrokerConnection, connect
from oncelog.consumer.consumer import Consumer
from oncelog.errors import ConnectionFailed
from oncelog.producer.producer import Producer
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

T = TopicPartition("topic", 0)
ERRORS = [
    TypeError("'NoneType' object is not callable"),  # raised by CPython 3.12 and 3.13.0 after the connection was lost
    RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed"),  # uvloop
]


class Fragile:
    """A transport on which every fourth write fails, before or after it has written its bytes."""

    def __init__(self, transport: Any, moment: str, error: Exception, writes: list[int]) -> None:
        self._transport, self._moment, self._error, self._writes = transport, moment, error, writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: Any) -> None:
        self._fragile(self._transport.write, data)

    def writelines(self, parts: Any) -> None:
        self._fragile(self._transport.writelines, parts)

    def _fragile(self, write: Callable[[Any], None], data: Any) -> None:
        self._writes.append(1)
        fails = not len(self._writes) % 4
        if not (fails and self._moment == "before"):
            write(data)
        if fails:
            raise self._error


@pytest.fixture(params=["before", "after"])
def moment(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=ERRORS, ids=lambda error: type(error).__name__)
def fragile(request: pytest.FixtureRequest, moment: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give all connections transports on which writes fail. Returns a list with one element for each write."""
    writes: list[int] = []
    made = BrokerConnection.connection_made

    def connection_made(self: BrokerConnection, transport: Any) -> None:
        made(self, Fragile(transport, moment, request.param, writes))

    monkeypatch.setattr(BrokerConnection, "connection_made", connection_made)
    return writes


@pytest.mark.usefixtures("fragile")
async def test_e55_records_are_sent_again_with_the_same_sequence(fake_broker: Any, fast: dict[str, int]) -> None:
    async with Producer(fake_broker.address, batch_size=1, linger_ms=0, **fast) as producer:
        for number in range(8):
            await producer.send_and_wait("topic", b"%d" % number)
    sent: dict[int, Any] = {}
    for data in fake_broker.logs["topic", 0]:
        batch = RecordBatch(data)
        sent.setdefault(batch.base_sequence, batch.producer_id)
    assert list(sent) == list(range(8))
    assert len(set(sent.values())) == 1


@pytest.mark.usefixtures("fragile")
async def test_e55_a_consumer_continues_to_read(fake_broker: Any, fast: dict[str, int]) -> None:
    for _ in range(8):
        fake_broker.append(build_batch([Record(0, 1, None, b"v", [])]))
    async with Consumer(fake_broker.address, auto_offset_reset="earliest", **fast) as consumer:
        consumer.assign([T])
        offsets: list[int] = []
        while len(offsets) < 8:
            for records in (await consumer.poll(1_000)).values():
                offsets += [record.offset for record in records]
    assert offsets == list(range(8))


@pytest.mark.usefixtures("fragile")
async def test_e55_unanswered_requests_fail_with_their_connection(fake_broker: Any, fast: dict[str, int]) -> None:
    """With acks=0 it is unknown whether records in flight were written; later records use a new connection."""
    async with Producer(fake_broker.address, acks=0, enable_idempotence=False, linger_ms=0, **fast) as producer:
        for _ in range(5):
            await producer.send_and_wait("topic", b"v")


@pytest.mark.usefixtures("fragile")
async def test_e55_a_request_fails_with_a_lost_connection(fake_broker: Any) -> None:
    """The future of the request fails, because the transport may have written the request."""
    connection = None
    while connection is None:  # the writes that set the connection up may fail, too
        try:
            connection = await connect(
                Address("127.0.0.1", fake_broker.port), client_id="me", request_timeout_s=5, setup_timeout_s=5
            )
        except ConnectionFailed:
            pass
    with pytest.raises(ConnectionFailed, match="the transport failed"):
        for _ in range(5):
            await connection.start(MetadataRequest(topics=[]))
    assert not connection.is_open
    await connection.wait_closed()


async def test_e55_a_transport_that_is_closing_is_not_written_to(fake_broker: Any) -> None:
    connection = await connect(
        Address("127.0.0.1", fake_broker.port), client_id="me", request_timeout_s=5, setup_timeout_s=5
    )
    assert connection._transport is not None
    connection._transport.abort()  # the loop notifies the connection in its next turn
    with pytest.raises(ConnectionFailed, match="closing"):
        connection.start(MetadataRequest(topics=[]))
    await connection.wait_closed()
