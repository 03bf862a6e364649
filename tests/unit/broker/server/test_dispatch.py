"""What becomes of a connection whose answer comes later."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog_broker.config.broker_keys import QUEUED_MAX_REQUESTS
from oncelog_broker.server.connection import BrokerConnection
from oncelog_broker.server.dispatch import Dispatcher, RequestContext, Route
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.heartbeat import HeartbeatResponse


class RecordingConnection:
    def __init__(self) -> None:
        self.said: list[str] = []

    def close(self, reason: str) -> None:
        self.said.append(f"closed: {reason}")

    def unmute(self) -> None:
        self.said.append("unmuted")

    def respond(self, parts: list[bytes]) -> None:
        self.said.append("answered")


async def said_after(outcome: Any) -> list[str]:
    """What is done to the connection when a Heartbeat is answered with `outcome`, later."""
    broker: Any = SimpleNamespace(config={QUEUED_MAX_REQUESTS: 1})
    connection = RecordingConnection()
    context = RequestContext(broker, cast(BrokerConnection, connection), ApiKey.HEARTBEAT, 4, 1, "c")
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    Dispatcher(broker)._wait(future, Route(ApiKey.HEARTBEAT, 4), context)
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
    await asyncio.sleep(0)
    return connection.said


async def test_an_answer_is_sent_and_the_next_request_read() -> None:
    assert await said_after(HeartbeatResponse(error_code=0)) == ["answered", "unmuted"]


@pytest.mark.parametrize("outcome", [HeartbeatResponse(error_code=1 << 20), RuntimeError("a bug")])
async def test_without_an_answer_the_client_is_not_left_waiting(outcome: Any) -> None:
    """Whether the request failed or its answer cannot be written."""
    assert await said_after(outcome) == ["closed: internal error"]
