"""The order in which the broker continues the TLS handshakes of several clients."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from oncelog_broker.server.net import tls_handshakes as handshakes
from oncelog_broker.server.net.tls_handshakes import TlsHandshakes
from oncelog_broker.server.net.tls_transport import HANDSHAKE_READ_BYTES, HANDSHAKE_RECORD, TlsTransport


class Stranger:
    """A client that begins a handshake and continues it only when the test says so."""

    def __init__(self, line: TlsHandshakes, host: str = "") -> None:
        self.line = line
        self.host = host
        self.steps = 0
        self.closed = ""

    def take_step(self) -> None:
        self.steps += 1

    def close(self, reason: str) -> None:
        self.closed = reason


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_one_handshake_step_is_done_per_loop_turn() -> None:
    line = TlsHandshakes()
    strangers = [Stranger(line) for _ in range(4)]
    for stranger in strangers:
        line.on_input(stranger)
    counted = []
    for _ in range(6):
        await asyncio.sleep(0)
        counted.append(sum(stranger.steps for stranger in strangers))
    assert counted == [1, 2, 3, 4, 4, 4]


async def test_handshakes_under_way_precede_new_ones() -> None:
    line = TlsHandshakes()
    first, second, third = (Stranger(line) for _ in range(3))
    line.on_input(first)
    await turns(1)
    line.on_input(second)
    line.on_input(third)
    line.on_input(first)
    await turns(1)
    assert (first.steps, second.steps, third.steps) == (2, 0, 0)


async def test_the_newest_handshake_begins_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "MAX_AT_ONCE", 1)
    monkeypatch.setattr(handshakes, "LEFT_SECONDS", 1000.0)
    line = TlsHandshakes()
    first, second, third = (Stranger(line) for _ in range(3))
    for stranger in (first, second, third):
        line.on_input(stranger)
    await turns()
    assert (first.steps, second.steps, third.steps) == (0, 0, 1), "all three had come before the first turn"
    line.leave(third)
    await turns()
    assert (first.steps, second.steps) == (0, 1), "as soon as there is room"
    line.leave(second)
    await turns()
    assert first.steps == 1


async def test_a_stalled_handshake_gives_up_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "MAX_AT_ONCE", 2)
    monkeypatch.setattr(handshakes, "LEFT_SECONDS", 0.0)
    line = TlsHandshakes()
    strangers = [Stranger(line) for _ in range(5)]
    for stranger in strangers:
        line.on_input(stranger)
        await turns()
    assert [bool(stranger.closed) for stranger in strangers] == [True, True, True, False, False]
    assert len(line) == 2


async def test_an_address_with_many_handshakes_gives_up_places_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "MAX_AT_ONCE", 4)
    monkeypatch.setattr(handshakes, "LEFT_SECONDS", 1000.0)
    line = TlsHandshakes()
    flood = [Stranger(line, "flood") for _ in range(50)]
    for stranger in flood:
        line.on_input(stranger)
    await turns(10)
    others = [Stranger(line, "other") for _ in range(5)]
    for stranger in others:
        line.on_input(stranger)
        line.on_input(Stranger(line, "flood"))  # a newer handshake, which does not delay the earlier handshakes
    await turns(10)
    assert [stranger.steps for stranger in others] == [0, 0, 0, 1, 1], "the newest, until both have as many places"
    assert sum(bool(stranger.closed) for stranger in flood) == 2
    third = Stranger(line, "third")
    line.on_input(third)
    await turns(10)
    assert third.steps == 1
    assert len(line) == 4


async def test_addresses_take_turns_beginning_with_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "MAX_AT_ONCE", 100)
    line = TlsHandshakes()
    begun: list[str] = []

    class Named(Stranger):
        def take_step(self) -> None:
            begun.append(self.host)

    for host in ("a", "a", "a", "b", "b"):
        line.on_input(Named(line, host))
    await turns(3)
    line.on_input(Named(line, "c"))
    await turns(5)
    assert begun == ["b", "a", "b", "c", "a", "a"]


async def test_no_address_without_connections_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "MAX_AT_ONCE", 3)
    line = TlsHandshakes()
    strangers = [Stranger(line, f"host-{number}") for number in range(20)]
    for stranger in strangers:
        line.on_input(stranger)
    await turns(5)
    for stranger in strangers:
        line.leave(stranger)
    await turns(5)
    assert not line._waiting
    assert not line._places
    assert len(line) == 0


async def test_a_departed_client_is_forgotten() -> None:
    line = TlsHandshakes()
    stranger = Stranger(line)
    line.on_input(stranger)
    line.leave(stranger)
    line.leave(stranger)
    await turns()
    assert stranger.steps == 0
    assert len(line) == 0


async def test_a_failed_handshake_step_stops_no_other() -> None:
    line = TlsHandshakes()
    broken, other = Stranger(line), Stranger(line)
    broken.take_step = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    loop, failures = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    line.on_input(other)
    line.on_input(broken)  # the newest handshake has precedence
    await turns()
    assert other.steps == 1
    assert [type(failure) for failure in failures] == [ZeroDivisionError]


async def test_a_client_that_waits_for_its_turn_has_little_of_our_memory() -> None:
    strangers: Any = SimpleNamespace(
        refuse_if_over_rate=lambda *_: False, admit=lambda *_: None, release=lambda *_: None
    )
    socket: Any = Mock(get_extra_info=lambda _: ("127.0.0.1", 5))
    transport = TlsTransport(Mock(), TlsHandshakes(), strangers, Mock())
    transport.connection_made(socket)
    room = transport.get_buffer(-1)
    assert len(room) == HANDSHAKE_READ_BYTES
    room[0] = HANDSHAKE_RECORD
    transport.buffer_updated(len(room))
    socket.pause_reading.assert_called_once_with()
    transport.connection_lost(None)
