"""A client sends no request during the throttle time of a broker (KIP-219), and no caller waits for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oncelog.address import Address
from oncelog.connection.transport import MAX_THROTTLE_S, BrokerConnection, connect
from oncelog.errors import ConnectionFailed, RequestTimedOut
from oncelog_protocol.messages.metadata import MetadataRequest, MetadataResponse

pytestmark = pytest.mark.virtual_time
REQUEST = MetadataRequest(topics=[])
TIMEOUT_S = 5.0


class Throttling:
    """A broker whose responses have the throttle times in `throttle_ms` one by one, and then 0; `asked` lists the times
    of the requests.
    """

    def __init__(self, broker: Any, *throttle_ms: int) -> None:
        self._broker = broker
        self._throttle_ms = list(throttle_ms)
        self.asked: list[float] = []
        broker.handlers[MetadataRequest] = self.answer

    def answer(self, request: MetadataRequest) -> MetadataResponse:
        self.asked.append(asyncio.get_running_loop().time())
        response: MetadataResponse = self._broker.on_metadata(request)
        response.throttle_time_ms = self._throttle_ms.pop(0) if self._throttle_ms else 0
        return response


async def connected(broker: Any) -> BrokerConnection:
    address = Address("127.0.0.1", broker.port)
    return await connect(address, client_id="me", request_timeout_s=TIMEOUT_S, setup_timeout_s=TIMEOUT_S)


async def test_no_request_is_sent_during_the_throttle_time(fake_broker: Any) -> None:
    broker = Throttling(fake_broker, 3000)
    connection = await connected(fake_broker)
    await connection.send(REQUEST)
    answers = await asyncio.gather(*(connection.send(REQUEST) for _ in range(3)))
    assert len(answers) == 3
    first, *others = broker.asked
    assert len(others) == 3
    assert all(3.0 <= asked - first < 3.5 for asked in others)
    connection.close()
    await connection.wait_closed()


async def test_the_longest_throttle_time_holds(fake_broker: Any) -> None:
    broker = Throttling(fake_broker, 3000, 1000)
    connection = await connected(fake_broker)
    await asyncio.gather(connection.send(REQUEST), connection.send(REQUEST))
    await connection.send(REQUEST)
    assert broker.asked[2] - broker.asked[0] >= 3.0
    connection.close()
    await connection.wait_closed()


async def test_a_request_that_waits_longer_than_its_time_fails_alone(fake_broker: Any) -> None:
    broker = Throttling(fake_broker, 2**31 - 1)
    connection = await connected(fake_broker)
    await connection.send(REQUEST)
    began = asyncio.get_running_loop().time()
    with pytest.raises(RequestTimedOut, match="sending to the broker timed out"):
        await connection.send(REQUEST)
    assert asyncio.get_running_loop().time() - began < TIMEOUT_S + 1
    assert connection.is_open
    await asyncio.sleep(MAX_THROTTLE_S)
    await connection.send(REQUEST)
    assert len(broker.asked) == 2, "what was given up is not sent later"
    connection.close()
    await connection.wait_closed()


async def test_requests_in_flight_get_a_longer_timeout(fake_broker: Any) -> None:
    """The broker sends no response during the throttle time."""
    broker = Throttling(fake_broker, 6000)
    connection = await connected(fake_broker)

    def late(request: MetadataRequest) -> MetadataResponse | None:
        response = broker.answer(request)
        return response if len(broker.asked) == 1 else None

    fake_broker.handlers[MetadataRequest] = late
    first, second = connection.start(REQUEST), connection.start(REQUEST)
    await first
    await asyncio.sleep(TIMEOUT_S + 1)
    assert not second.done()
    assert connection.is_open
    with pytest.raises(RequestTimedOut):
        await second


async def test_waiting_requests_fail_when_the_broker_disconnects(fake_broker: Any) -> None:
    Throttling(fake_broker, 3000)
    connection = await connected(fake_broker)
    await connection.send(REQUEST)
    waiting = connection.start(REQUEST)
    connection.close()
    with pytest.raises(ConnectionFailed):
        await waiting


async def test_a_cancelled_request_is_not_sent_after_the_throttle_time(fake_broker: Any) -> None:
    broker = Throttling(fake_broker, 300)
    connection = await connected(fake_broker)
    await connection.send(REQUEST)
    cancelled, later = connection.start(REQUEST), connection.start(REQUEST)
    cancelled.cancel()
    await later
    assert len(broker.asked) == 2
    connection.close()


async def test_closing_without_pending_requests_does_not_wait(fake_broker: Any) -> None:
    Throttling(fake_broker, 60_000)
    connection = await connected(fake_broker)
    await connection.send(REQUEST)
    began = asyncio.get_running_loop().time()
    await connection.finish()
    assert asyncio.get_running_loop().time() - began < 1
    waiting = connection.start(REQUEST)
    finishing = asyncio.ensure_future(connection.finish())
    await asyncio.sleep(1)
    connection.close()
    await finishing
    assert asyncio.get_running_loop().time() - began < 3, "nor for a connection that is gone"
    with pytest.raises(ConnectionFailed):
        await waiting
