"""Late responses are written when they are ready, and a request without a response is not awaited."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_broker.config.broker_keys import GROUP_METADATA_MAX_BYTES, TRANSACTION_TWO_PHASE_COMMIT_ENABLE
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.dispatch.dispatcher import Dispatcher
from oncelog_broker.server.net.answer_queue import Slot
from oncelog_broker.server.net.limits import BYTES_BESIDE_METADATA
from oncelog_broker.server.request.context import RequestContext
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import (
    MAX_MESSAGE_CHARS,
    ErrorCode,
    KafkaError,
    MalformedMessage,
    TooManyElements,
    UnencodableMessage,
)


class WaitingConnection:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.gate = None
        self.lanes: dict[int, Any] = {}
        self.client_host = "10.0.0.1"

    def wait_for(
        self, answer: Any, *, reads_frame: bool, holds_back: bool, is_long_poll: bool, is_unread: bool
    ) -> Slot:
        return Slot(answer, [])

    def respond(self, parts: list[Any], slot: Slot) -> None:
        self.events.append("answer")

    @property
    def has_ended(self) -> bool:
        return any(event.startswith(("finish", "close")) for event in self.events)

    def finish(self, slot: Slot) -> None:
        self.events.append("finish")

    def close(self, reason: str) -> None:
        self.events.append(f"close: {reason}")


class RecordingRoute:
    has_records = False
    reads_frame = False
    flexible_response = False
    times = None

    def encode_steps(self, response: str, parts: list[Any]) -> Steps[None]:
        yield None
        if response == "unencodable":
            raise UnencodableMessage("a string of 40000 bytes")
        parts.append(response.encode())


def services() -> SimpleNamespace:
    return SimpleNamespace(
        authorizer=None,
        clock=ManualClock(),
        slices=Slices(ManualClock(), Tasks()),
        config={GROUP_METADATA_MAX_BYTES: 1 << 20, TRANSACTION_TWO_PHASE_COMMIT_ENABLE: False},
    )


async def events_of(answer: Any) -> list[str]:
    broker, connection = services(), WaitingConnection()
    context = RequestContext(broker, connection, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, 1, None)  # type: ignore[arg-type]
    route: Any = RecordingRoute()
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    Dispatcher(broker).wait(future, route, context, 0.0)  # type: ignore[arg-type]
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
    async with asyncio.timeout(10):
        while not connection.has_ended:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    return connection.events


async def test_the_connection_continues_after_a_late_answer() -> None:
    assert await events_of("late") == ["answer", "finish"]
    assert await events_of(None) == ["finish"]


async def test_a_late_answer_that_cannot_be_given_closes_the_connection_instead_of_holding_it_for_ever() -> None:
    assert await events_of("unencodable") == ["close: internal error"]
    assert await events_of(RuntimeError("a bug")) == ["close: internal error"]


def test_an_error_message_fits_every_response_whatever_it_quotes() -> None:
    assert len(KafkaError(ErrorCode.INVALID_CONFIG, "x" * 100_000).message) == MAX_MESSAGE_CHARS


def test_a_request_without_records_is_not_copied_whatever_its_size(caplog: pytest.LogCaptureFixture) -> None:
    frame = struct.pack(">hhi", ApiKey.JOIN_GROUP, 5, 1) + bytes((1 << 20) + BYTES_BESIDE_METADATA)
    dispatcher = Dispatcher(services())  # type: ignore[arg-type]
    for _ in range(3):
        with pytest.raises(MalformedMessage, match="no records"):
            dispatcher.handle(WaitingConnection(), memoryview(frame))  # type: ignore[arg-type]
    (line,) = caplog.records
    assert "split the request" in line.message
    assert line.client == "10.0.0.1"  # type: ignore[attr-defined]


async def test_an_oversized_request_is_logged_once_per_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for error, lines in ((TooManyElements("array of 60000 elements"), 1), (MalformedMessage("garbage"), 0)):
        caplog.clear()
        assert (await events_of(error))[0].startswith("close: malformed request")
        assert len(caplog.records) == lines
