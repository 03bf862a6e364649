"""Frames in, responses out: BrokerConnection against a recording transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog_broker.server.connection import (
    INITIAL_BUFFER_BYTES,
    MEMORY_RETRY_SECONDS,
    READ_AHEAD_BYTES,
    BrokerConnection,
    coalesce,
)
from oncelog_broker.server.connections import Connections
from oncelog_broker.server.limits import FRAME_PROGRESS_SECONDS, RESPONSE_STALL_SECONDS, Limits


class RecordingTransport(asyncio.Transport):
    def __init__(self, host: str = "127.0.0.1", descriptor: int | None = None) -> None:
        connected = None if descriptor is None else SimpleNamespace(fileno=lambda: descriptor)
        super().__init__({"peername": (host, 5000), "socket": connected})
        self.written: list[bytes] = []
        self.aborted = False
        self.paused = False
        self.unsent = 0

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.written.append(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def abort(self) -> None:
        self.aborted = True


class RecordingDispatcher:
    """Keeps copies of the frames; mutes the connection after those whose first byte is `M`."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.last_frame = memoryview(b"")

    def handle(self, connection: BrokerConnection, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self.last_frame = frame
        if frame[0:1] == b"M":
            connection.mute()


def limits(**changes: Any) -> Limits:
    values: dict[str, Any] = {
        "max_connections": 10,
        "max_connections_per_ip": 10,
        "request_max_bytes": 1_000_000,
        "queued_max_request_bytes": -1,
        "idle_seconds": 600.0,
    }
    return Limits(**{**values, **changes})


class Wire:
    """A connection and both its ends."""

    def __init__(self, **changes: Any) -> None:
        self.limits = limits(**changes)
        self.dispatcher = RecordingDispatcher()
        self.connections = Connections(self.limits)
        self.connection, self.transport = self.connect()

    def connect(self) -> tuple[BrokerConnection, RecordingTransport]:
        connection = BrokerConnection(self.dispatcher.handle, self.connections, "PLAINTEXT")
        transport = RecordingTransport()
        connection.connection_made(transport)
        return connection, transport

    def receive(self, data: bytes) -> int:
        """Feed `data` as a socket would, as far as the connection reads; how much it took."""
        taken = 0
        while taken < len(data) and not self.transport.paused and not self.transport.aborted:
            buffer = self.connection.get_buffer(-1)
            assert len(buffer) > 0
            size = min(len(buffer), len(data) - taken)
            buffer[:size] = data[taken : taken + size]
            taken += size
            self.connection.buffer_updated(size)
        return taken


def frame(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


@pytest.mark.parametrize("behind", [0, 1000, INITIAL_BUFFER_BYTES - 100])
async def test_a_request_that_is_worked_on_keeps_its_frame(behind: int) -> None:
    wire = Wire()
    slow = frame(b"M" + bytes(range(256)) * 8)
    wire.receive(slow + b"\0" * behind)
    kept = bytes(wire.dispatcher.last_frame)
    wire.receive(frame(b"c" * 3000) * 20)
    assert bytes(wire.dispatcher.last_frame) == kept == slow[4:]


@given(
    bodies=st.lists(st.binary(min_size=8, max_size=200).filter(lambda body: body[0:1] != b"M"), max_size=20),
    cuts=st.lists(st.integers(1, 64), min_size=1, max_size=30),
)
def test_frames_are_whole_and_in_order_wherever_the_bytes_are_cut(bodies: list[bytes], cuts: list[int]) -> None:
    async def run() -> list[bytes]:
        wire = Wire()
        data = b"".join(map(frame, bodies))
        position = turn = 0
        while position < len(data):
            size = cuts[turn % len(cuts)]
            wire.receive(data[position : position + size])
            position += size
            turn += 1
        return wire.dispatcher.frames

    assert asyncio.run(run()) == bodies


async def test_a_frame_larger_than_the_buffer_arrives_whole() -> None:
    wire = Wire()
    body = bytes(range(256)) * 2000
    wire.receive(frame(body) + frame(b"next" * 4))
    assert wire.dispatcher.frames == [body, b"next" * 4]


async def test_memory_follows_the_bytes_received_not_the_length_claimed() -> None:
    wire = Wire(request_max_bytes=100_000_000)
    wire.receive(pack(">i", 99_000_000) + b"x" * 1000)
    assert len(wire.connection.get_buffer(-1)) <= INITIAL_BUFFER_BYTES


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, 1_000_001, 2**31 - 1])
async def test_a_size_outside_the_limits_closes_the_connection(size: int) -> None:
    wire = Wire()
    wire.receive(pack(">i", size) + b"x" * 100)
    assert wire.transport.aborted
    assert wire.dispatcher.frames == []


async def test_a_waiting_request_holds_back_those_behind_it() -> None:
    wire = Wire()
    wire.receive(frame(b"M" * 8) + frame(b"a" * 8) + frame(b"M" * 9) + frame(b"b" * 8))
    assert wire.dispatcher.frames == [b"M" * 8]
    wire.connection.unmute()
    assert wire.dispatcher.frames == [b"M" * 8, b"a" * 8, b"M" * 9]
    wire.connection.unmute()
    assert wire.dispatcher.frames[-1] == b"b" * 8


async def test_a_muted_connection_stops_reading_when_its_buffer_is_full() -> None:
    wire = Wire()
    flood = frame(b"M" * 8) + frame(b"a" * 100) * 10_000
    taken = wire.receive(flood)
    assert wire.transport.paused
    assert taken <= INITIAL_BUFFER_BYTES + 12  # the place of the handled frame is free again
    wire.connection.unmute()
    assert not wire.transport.paused
    wire.receive(flood[taken:])
    assert len(wire.dispatcher.frames) == 10_001


async def test_a_client_that_does_not_read_is_not_served_and_then_cut_off() -> None:
    wire = Wire()
    wire.connection.pause_writing()
    wire.receive(frame(b"a" * 8))
    assert wire.dispatcher.frames == []
    wire.connection.resume_writing()
    assert wire.dispatcher.frames == [b"a" * 8]
    wire.connection.pause_writing()
    now = asyncio.get_running_loop().time()
    wire.connection.sweep(now + RESPONSE_STALL_SECONDS - 1)
    assert not wire.transport.aborted
    wire.connection.sweep(now + RESPONSE_STALL_SECONDS + 1)
    assert wire.transport.aborted


async def test_a_client_that_reads_slowly_is_not_cut_off() -> None:
    wire = Wire()
    wire.transport.unsent = 50_000_000
    wire.connection.pause_writing()
    now = asyncio.get_running_loop().time()
    for _ in range(10):
        now += RESPONSE_STALL_SECONDS - 1
        wire.transport.unsent -= 1_000_000
        wire.connection.sweep(now)
        assert not wire.transport.aborted
    wire.connection.sweep(now + RESPONSE_STALL_SECONDS + 1)
    assert wire.transport.aborted


async def test_a_request_that_still_waits_is_not_overtaken_when_the_client_reads_again() -> None:
    wire = Wire()
    wire.receive(frame(b"M" * 8) + frame(b"a" * 8))
    wire.connection.pause_writing()
    wire.connection.resume_writing()
    assert wire.dispatcher.frames == [b"M" * 8]


async def test_a_frame_that_does_not_progress_is_cut_off() -> None:
    wire = Wire()
    wire.receive(frame(b"a" * 100)[:50])
    now = asyncio.get_running_loop().time()
    wire.connection.sweep(now + FRAME_PROGRESS_SECONDS - 1)
    assert not wire.transport.aborted
    wire.connection.sweep(now + FRAME_PROGRESS_SECONDS + 1)
    assert wire.transport.aborted


async def test_time_spent_waiting_for_an_answer_counts_neither_as_rest_nor_against_the_frame_behind_it() -> None:
    wire = Wire(idle_seconds=100)
    wire.receive(frame(b"M" * 8) + frame(b"a" * 100)[:50])
    wire.connection.last_active -= 1000
    wire.connection.unmute()
    wire.connection.sweep(asyncio.get_running_loop().time() + 5)
    assert not wire.transport.aborted


async def test_an_idle_connection_gives_its_memory_back_and_then_goes() -> None:
    wire = Wire(idle_seconds=100)
    wire.receive(frame(b"a" * 100_000))
    assert wire.limits.request_bytes > 0
    now = asyncio.get_running_loop().time()
    wire.connection.sweep(now + 5)
    assert wire.limits.request_bytes == 0
    wire.receive(frame(b"b" * 8))
    assert wire.dispatcher.frames[-1] == b"b" * 8
    wire.connection.sweep(now + 200)
    assert wire.transport.aborted


async def until(condition: Callable[[], bool]) -> None:
    """Connections ask for memory again after MEMORY_RETRY_SECONDS."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(MEMORY_RETRY_SECONDS)


async def test_large_frames_wait_for_memory_that_others_hold() -> None:
    wire = Wire(queued_max_request_bytes=150_000)
    first, second = object(), object()
    assert wire.limits.reserve(100_000, first)
    assert wire.limits.reserve(100_000, second), "one at a time may go over the limit"
    data = frame(b"a" * 100_000)
    taken = wire.receive(data)
    assert wire.transport.paused
    assert wire.dispatcher.frames == []
    wire.limits.give_back(100_000, second)
    wire.limits.give_back(100_000, first)
    await until(lambda: not wire.transport.paused)
    wire.receive(data[taken:])
    assert wire.dispatcher.frames == [b"a" * 100_000]


async def test_what_silent_clients_claim_keeps_nobody_from_sending() -> None:
    wire = Wire(queued_max_request_bytes=256_000_000, request_max_bytes=100_000_000)
    for _ in range(3):
        connection, _ = wire.connect()
        claim = pack(">i", 100_000_000) + b"x" * 10_000
        connection.get_buffer(-1)[: len(claim)] = claim
        connection.buffer_updated(len(claim))
    wire.receive(frame(b"a" * 1_000_000))
    assert wire.dispatcher.frames == [b"a" * 1_000_000]


async def test_frames_that_together_need_more_than_there_is_are_finished_one_after_another() -> None:
    """All begun, none complete, and no memory left: without a way out they would wait for each other for ever."""
    wire = Wire(queued_max_request_bytes=300_000)
    data = frame(b"a" * 200_000)
    ends = [(wire.connection, wire.transport), wire.connect(), wire.connect()]
    left = dict.fromkeys(ends, data)

    def send() -> None:
        for end, rest in left.items():
            wire.connection, wire.transport = end
            left[end] = rest[wire.receive(rest[:50_000]) :]

    while any(left.values()):
        before = dict(left)
        send()
        assert wire.limits.request_bytes <= 300_000 + 200_000 + READ_AHEAD_BYTES
        if left == before:
            await until(lambda: any(left[end] and not end[1].paused for end in ends))
    assert wire.dispatcher.frames == [b"a" * 200_000] * 3


async def test_memory_that_others_wait_for_is_given_back_with_the_end_of_a_frame() -> None:
    wire = Wire(queued_max_request_bytes=300_000)
    wire.receive(frame(b"a" * 100_000))
    kept = wire.limits.request_bytes
    assert kept > 100_000, "for the next one"
    first, second = object(), object()
    assert [wire.limits.reserve(100_000, holder) for holder in (first, second)] == [True, True]
    assert not wire.limits.reserve(1, object())
    wire.receive(frame(b"b" * 100_000))
    assert wire.limits.request_bytes == 200_000


async def test_connections_beyond_the_limits_are_refused_and_counted_out() -> None:
    wire = Wire(max_connections=2)
    second, second_transport = wire.connect()
    _, third_transport = wire.connect()
    assert not second_transport.aborted
    assert third_transport.aborted
    second.connection_lost(None)
    assert wire.limits.connections == 1
    assert wire.limits.per_ip == {"127.0.0.1": 1}


async def test_the_last_descriptors_are_left_to_logs() -> None:
    wire = Wire(first_descriptor_not_for_connections=100)
    refused = []
    for descriptor in (50, 99, 100, 500, 98):
        transport = RecordingTransport(descriptor=descriptor)
        BrokerConnection(wire.dispatcher, wire.connections, "PLAINTEXT").connection_made(transport)  # type: ignore[arg-type]
        refused.append(transport.aborted)
    assert refused == [False, False, True, True, False]
    assert wire.limits.connections == 1 + 3


async def test_one_address_may_not_take_all_connections() -> None:
    wire = Wire(max_connections_per_ip=1)
    _, second = wire.connect()
    assert second.aborted


def test_coalesce_joins_small_parts_and_leaves_large_ones_alone() -> None:
    large = memoryview(b"x" * 20_000)
    parts = coalesce([b"a", b"b", large, b"c", large])
    assert parts[0] == b"ab"
    assert parts[1] is large
    assert parts[2] == b"c"
    assert parts[3] is large
