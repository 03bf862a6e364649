"""What is made when the first request of an API comes is made in a thread: nobody but who asks for it waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.wires import Wire, frame, until

from oncelog_broker.config.broker_keys import GROUP_METADATA_MAX_BYTES
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server import routes
from oncelog_broker.server.dispatch import Dispatcher
from oncelog_broker.server.routes import Route
from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey, request_header_version, request_type
from oncelog_protocol.codec import codec
from oncelog_protocol.messages.headers import RequestHeader


class Making:
    """Makes routes when it may, and notes in which threads."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.threads: list[int] = []
        self.made: list[tuple[int, int]] = []
        self.fails = False

    def __call__(self, api_key: int, version: int) -> Route:
        self.threads.append(threading.get_ident())
        assert self.may_go_on.wait(60)
        if self.fails:
            raise ImportError("no such handler")
        route = Route(api_key, version)
        route.handler = self.handle
        self.made.append((api_key, version))
        return route

    def handle(self, request: Any, context: Any) -> Any:
        from oncelog_protocol.messages.heartbeat import HeartbeatResponse

        return HeartbeatResponse(error_code=int(request.group_id))


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> Making:
    making = Making()
    monkeypatch.setattr(routes, "Route", making)
    return making


def heartbeat(number: int, version: int = 3) -> bytes:
    """Answered with the number as its error code."""
    key = ApiKey.HEARTBEAT
    header = codec(RequestHeader, request_header_version(key, version)).encode(
        RequestHeader(request_api_key=key, request_api_version=version, correlation_id=number, client_id="c")
    )
    request = request_type(key)(group_id=str(number), generation_id=1, member_id="m")
    return frame(header + codec(request_type(key), version).encode(request))


def answered(wire: Any) -> list[int]:
    """The correlation ids of the answers, in order."""
    data, found = b"".join(wire.transport.written), list[int]()
    while data:
        size = int.from_bytes(data[:4], "big")
        found.append(int.from_bytes(data[4:8], "big"))
        data = data[4 + size :]
    return found


def served_by(dispatcher: Dispatcher) -> Wire:
    wire = Wire()
    wire.dispatcher = dispatcher  # type: ignore[assignment]
    wire.connection, wire.transport = wire.connect()
    return wire


@pytest.fixture
async def dispatcher() -> Any:
    clock, tasks = ManualClock(), Tasks()
    services: Any = SimpleNamespace(
        clock=clock,
        tasks=tasks,
        slices=Slices(clock, tasks),
        authorizer=None,
        config={GROUP_METADATA_MAX_BYTES: 1 << 20},
    )
    yield Dispatcher(services, makes_routes_aside=True)
    await tasks.close()


async def test_requests_wait_in_order_for_what_is_made_in_a_thread(making: Making, dispatcher: Dispatcher) -> None:
    wire, other = served_by(dispatcher), served_by(dispatcher)
    wire.receive(heartbeat(1) + heartbeat(2))
    wire.receive(heartbeat(3))
    other.receive(heartbeat(4))
    await until(lambda: bool(making.threads))
    assert answered(wire) == answered(other) == [], "and the loop goes on"
    making.may_go_on.set()
    await until(lambda: len(answered(wire)) == 3 and len(answered(other)) == 1)
    assert answered(wire) == [1, 2, 3]
    assert making.made == [(ApiKey.HEARTBEAT, 3)], "once, whoever asks for it"
    assert threading.get_ident() not in making.threads
    wire.receive(heartbeat(5))
    assert answered(wire)[-1] == 5, "from now on at once"


async def test_who_is_throttled_meanwhile_goes_on_when_that_is_over(making: Making, dispatcher: Dispatcher) -> None:
    wire = served_by(dispatcher)
    wire.receive(heartbeat(1))
    wire.connection.throttle(0.05)
    making.may_go_on.set()
    await until(lambda: bool(making.made))
    await until(lambda: answered(wire) == [1])


async def test_who_goes_meanwhile_is_not_answered(making: Making, dispatcher: Dispatcher) -> None:
    wire, other = served_by(dispatcher), served_by(dispatcher)
    for each in (wire, other):
        each.receive(heartbeat(1))
    wire.connection.connection_lost(None)
    making.may_go_on.set()
    await until(lambda: answered(other) == [1])
    assert answered(wire) == []


async def test_what_cannot_be_made_closes_who_waits_for_it(
    making: Making, dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    making.fails = True
    making.may_go_on.set()
    wire = served_by(dispatcher)
    wire.receive(heartbeat(1))
    await until(lambda: wire.transport.aborted or wire.transport.closed)
    assert "no such handler" in caplog.text
    making.fails = False
    other = served_by(dispatcher)
    other.receive(heartbeat(2))
    await until(lambda: answered(other) == [2])


async def test_what_is_not_served_is_refused_at_once(making: Making, dispatcher: Dispatcher) -> None:
    wire = served_by(dispatcher)
    wire.receive(frame((999).to_bytes(2, "big") + bytes(8)))
    assert wire.transport.aborted or wire.transport.closed
    assert making.threads == []


def test_routes_can_be_made_in_threads_at_the_same_time() -> None:
    """As by two brokers of a process, or a broker and its clients."""
    wanted = [(served.key, version) for served in list(SERVED.values())[:12] for version in served.versions]
    routes_made: list[Route] = []
    threads = [threading.Thread(target=_make_all, args=(wanted, routes_made.append)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(routes_made) == 3 * len(wanted)


def _make_all(wanted: list[tuple[ApiKey, int]], made: Callable[[Route], None]) -> None:
    for key, version in wanted:
        made(Route(key, version))
