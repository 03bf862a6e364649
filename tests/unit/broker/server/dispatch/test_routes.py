"""For the first request of an API, the handler is imported and the codecs are compiled in slices between other work."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.wires import Wire, frame

from oncelog_broker.config.broker_keys import GROUP_METADATA_MAX_BYTES, TRANSACTION_TWO_PHASE_COMMIT_ENABLE
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import SLICE_SECONDS, Slices
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.dispatch.dispatcher import Dispatcher
from oncelog_broker.server.dispatch.routes import NewRoute, Route
from oncelog_broker.server.net.answer_queue import Slot
from oncelog_broker.server.net.header_cache import NO_HEADER
from oncelog_broker.server.net.limits import ELEMENTS_AT_ONCE
from oncelog_broker.server.request.context import RequestContext
from oncelog_broker.server.served import Served
from oncelog_protocol.api import ApiKey
from oncelog_protocol.codec import codec
from oncelog_protocol.errors import ErrorCode, MalformedMessage
from oncelog_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog_protocol.messages.produce import ProduceRequest

VERSION, PRODUCE_VERSION = 4, 9


class Connection:
    """Records the outcome of its requests."""

    def __init__(self) -> None:
        self.gate = None
        self.cached_header = NO_HEADER
        self.lanes: dict[int, Any] = {}
        self.events: list[str] = []
        self.has_ended = asyncio.Event()

    def wait_for(
        self, answer: Any, *, reads_frame: bool, holds_back: bool, is_long_poll: bool, is_unread: bool
    ) -> Slot:
        self.events.append(f"waits {reads_frame=} {holds_back=} {is_unread=}")
        return Slot(answer, [])

    def begins(self, slot: Slot) -> None:
        self.events.append("begins")

    def respond(self, parts: list[Any], slot: Slot | None) -> None:
        self.events.append("answer")

    def finish(self, slot: Slot) -> None:
        self.events.append("finish")
        self.has_ended.set()

    def close(self, reason: str) -> None:
        self.events.append(reason)
        self.has_ended.set()

    def cancelled(self, slot: Slot) -> None:
        self.events.append("cancelled")


class Broker:
    """A broker in which importing a handler takes an entire slice."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[list[str]] = []
        clock = ManualClock()

        def load(_: Served) -> Any:
            clock.advance_ms(int(SLICE_SECONDS * 1000) + 1)
            return self.handle

        monkeypatch.setattr(Served, "load", load)
        services: Any = SimpleNamespace(
            clock=clock,
            slices=Slices(clock, Tasks()),
            config={GROUP_METADATA_MAX_BYTES: 1 << 20, TRANSACTION_TWO_PHASE_COMMIT_ENABLE: False},
        )
        self.dispatcher = Dispatcher(services)

    def handle(self, request: ListGroupsRequest | ProduceRequest, _: Any) -> ListGroupsResponse | None:
        if isinstance(request, ProduceRequest):
            self.asked.append([request.transactional_id or ""])
            return None  # acks=0
        self.asked.append(request.states_filter)
        return ListGroupsResponse(error_code=ErrorCode.NONE, groups=[])

    def ask(self, connection: Any, body: bytes) -> None:
        self.dispatcher.handle(connection, memoryview(body))


def asks_for(*states: str) -> bytes:
    header = struct.pack(">hhih3sB", ApiKey.LIST_GROUPS, VERSION, 1, 3, b"raw", 0)
    return header + codec(ListGroupsRequest, VERSION).encode(ListGroupsRequest(states_filter=list(states)))


WAITS = "waits reads_frame=True holds_back=True is_unread=True"


async def test_only_the_first_request_of_an_api_waits_for_its_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, first, second = Broker(monkeypatch), Connection(), Connection()
    broker.ask(first, asks_for("Stable"))
    assert first.events == [WAITS]
    assert not broker.asked, "the turn of others comes before the rest"
    await asyncio.wait_for(first.has_ended.wait(), 30)
    assert first.events == [WAITS, "begins", "answer", "finish"]
    broker.ask(second, asks_for("Dead"))
    assert second.events == ["answer"]
    assert broker.asked == [["Stable"], ["Dead"]]


async def test_two_simultaneous_first_requests_share_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, connections = Broker(monkeypatch), [Connection(), Connection()]
    for connection in connections:
        broker.ask(connection, asks_for("Stable"))
    await asyncio.gather(*(asyncio.wait_for(connection.has_ended.wait(), 30) for connection in connections))
    assert [connection.events for connection in connections] == [[WAITS, "begins", "answer", "finish"]] * 2
    assert broker.asked == [["Stable"], ["Stable"]]


async def test_the_first_request_of_an_api_may_be_very_long(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, connection = Broker(monkeypatch), Connection()
    states = [str(number) for number in range(ELEMENTS_AT_ONCE + 1)]
    broker.ask(connection, asks_for(*states))
    await asyncio.wait_for(connection.has_ended.wait(), 30)
    assert connection.events == [WAITS, "begins", "answer", "finish"]
    assert broker.asked == [states]


async def test_a_quota_applies_however_the_request_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, counted = Broker(monkeypatch), list[Any]()

    class Counting:
        def context(self, *args: Any) -> RequestContext:
            return RequestContext(*args[:-1])

        def serve(self, handler: Any, request: Any, context: Any) -> Any:
            counted.append(request.states_filter)
            return handler(request, context)

    broker.dispatcher.throttling = Counting()  # type: ignore[assignment]
    many = [str(number) for number in range(ELEMENTS_AT_ONCE + 1)]
    for states in (["first"], ["later"], many):
        broker.ask(connection := Connection(), asks_for(*states))
        if "answer" not in connection.events:
            await asyncio.wait_for(connection.has_ended.wait(), 30)
    assert counted == broker.asked == [["first"], ["later"], many]


async def test_a_first_request_that_cannot_be_read_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, connection = Broker(monkeypatch), Connection()
    broker.ask(connection, asks_for("Stable")[:-3])
    await asyncio.wait_for(connection.has_ended.wait(), 30)
    assert connection.events[0] == WAITS
    assert connection.events[1].startswith("malformed request")
    assert not broker.asked


@pytest.mark.parametrize("breaks", [False, True])
async def test_the_first_request_is_handled_although_its_client_has_disconnected(
    monkeypatch: pytest.MonkeyPatch, breaks: bool
) -> None:
    """A producer with acks=0, or a member that leaves its group, sends its last request and then disconnects."""
    header = struct.pack(">hhih3sB", ApiKey.PRODUCE, PRODUCE_VERSION, 1, 3, b"raw", 0)
    request = ProduceRequest(transactional_id="here", acks=0, timeout_ms=1000, topic_data=[])
    produced = header + codec(ProduceRequest, PRODUCE_VERSION).encode(request)
    broker = Broker(monkeypatch)
    for body, asked in ((produced, ["here"]), (asks_for("Stable"), ["Stable"])):
        wire = Wire()
        wire.connection._handle = broker.dispatcher.handle
        wire.receive(frame(body))
        assert asked not in broker.asked
        if breaks:
            wire.connection.connection_lost(None)
        else:
            assert wire.connection.eof_received()
        async with asyncio.timeout(30):
            while asked not in broker.asked or not (wire.transport.closed or not len(wire.connections)):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
    assert broker.asked == [["here"], ["Stable"]]


def test_a_route_is_not_used_before_it_is_made() -> None:
    route = Route(ApiKey.LIST_GROUPS, VERSION)
    with pytest.raises(NewRoute):
        route.decode(memoryview(b""), 0)
    with pytest.raises(MalformedMessage, match="not served"):
        Route(ApiKey.LIST_GROUPS, 99)
