"""Frames in, responses out: BrokerConnection against a recording transport."""

from __future__ import annotations

import asyncio
import mmap
import random
from collections.abc import Callable
from itertools import pairwise
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog_broker.runtime.turns import TurnBudget
from oncelog_broker.server.answer_queue import MAX_OUTSTANDING_ANSWERS, Slot, coalesce
from oncelog_broker.server.connection import LEFT_SECONDS, MEMORY_RETRY_SECONDS, BrokerConnection
from oncelog_broker.server.connections import Connections
from oncelog_broker.server.ledger import PROGRESS_WINDOW_SECONDS, Holding
from oncelog_broker.server.limits import (
    FRAME_SECONDS,
    LARGE_REQUEST_BYTES,
    MAX_UNSENT_BYTES,
    MIN_FRAME_RATE,
    RESPONSE_STALL_SECONDS,
    WRITE_HIGH_WATER_BYTES,
    Limits,
)
from oncelog_broker.server.outlet import PORTION_BYTES
from oncelog_broker.server.receiving import INITIAL_BUFFER_BYTES, LARGE_FRAME_BYTES, READ_AHEAD_BYTES


class RecordingTransport(asyncio.Transport):
    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__({"peername": (host, 5000)})
        self.written: list[bytes] = []
        self.aborted = False
        self.closed = False
        self.paused = False
        self.unsent = 0
        self.on_write: Callable[[], None] = lambda: None

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))
        self.on_write()

    def writelines(self, list_of_data: Any) -> None:
        self.written.append(b"".join(list_of_data))
        self.on_write()

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

    def close(self) -> None:
        self.closed = True


class RecordingDispatcher:
    """Keeps copies of the frames. Those whose first byte is `M` wait and hold back the others, `L` do too and wait for
    what others do (a long poll), `O` wait and let others in, `A` are answered with what they are; no other has an
    answer."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.last_frame = memoryview(b"")
        self.waiting: list[tuple[Slot, asyncio.Future[None]]] = []

    def handle(self, connection: BrokerConnection, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self.last_frame = frame
        first = frame[0:1]
        if first == b"A":
            connection.respond([bytes(frame)])
        elif first in (b"M", b"L", b"O"):
            answer = asyncio.get_running_loop().create_future()
            slot = connection.wait_for(
                answer, reads_frame=first == b"M", holds_back=first != b"O", is_long_poll=first == b"L"
            )
            answer.add_done_callback(lambda answer: connection.cancelled(slot) if answer.cancelled() else None)
            self.waiting.append((slot, answer))


def limits(**changes: Any) -> Limits:
    values: dict[str, Any] = {
        "max_connections": 10,
        "max_connections_per_ip": 10,
        "request_max_bytes": 1_000_000,
        "queued_max_request_bytes": -1,
        "queued_max_response_bytes": -1,
        "idle_seconds": 600.0,
    }
    return Limits(**{**values, **changes})


class Wire:
    """A connection and both its ends."""

    def __init__(self, **changes: Any) -> None:
        self.limits = limits(**changes)
        self.dispatcher = RecordingDispatcher()
        self.turn_seconds = 0.0
        self.write_seconds = 0.0
        """How long the transport takes to give something to the system, of a turn that has 1.0."""
        self.connections = Connections(self.limits, TurnBudget(lambda: self.turn_seconds, 1.0))
        self.connection, self.transport = self.connect()

    def connect(self) -> tuple[BrokerConnection, RecordingTransport]:
        connection = BrokerConnection(self.dispatcher.handle, self.connections, "PLAINTEXT")
        transport = RecordingTransport()
        transport.on_write = self._on_write
        connection.connection_made(transport)
        return connection, transport

    def _on_write(self) -> None:
        self.turn_seconds += self.write_seconds

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

    def finish(self, number: int = 0, answer: bytes = b"") -> None:
        """The answer of a request that waits is there."""
        slot, _ = self.dispatcher.waiting.pop(number)
        if answer:
            self.connection.respond([answer], slot)
        self.connection.finish(slot)


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
    wire.finish()
    assert wire.dispatcher.frames == [b"M" * 8, b"a" * 8, b"M" * 9]
    wire.finish()
    assert wire.dispatcher.frames[-1] == b"b" * 8


async def test_waits_of_pipelined_requests_overlap_and_their_answers_leave_in_order() -> None:
    wire = Wire()
    wire.receive(frame(b"O first ") + frame(b"O second") + frame(b"A third ") + frame(b"O fourth"))
    assert len(wire.dispatcher.frames) == 4
    wire.finish(1, b"second")
    assert wire.transport.written == []
    wire.finish(0, b"first")
    assert b"".join(wire.transport.written) == b"firstsecondA third "
    wire.finish(0, b"fourth")
    assert wire.transport.written[-1] == b"fourth"


async def test_a_request_that_has_no_answer_holds_nobody_up() -> None:
    wire = Wire()
    wire.receive(frame(b"O first ") + frame(b"A second"))
    wire.finish(0)
    assert wire.transport.written == [b"A second"]


async def test_a_request_whose_effects_are_done_lets_the_next_one_in() -> None:
    wire = Wire()
    wire.receive(frame(b"M first ") + frame(b"A second"))
    assert len(wire.dispatcher.frames) == 1
    wire.connection.let_next_in(wire.dispatcher.waiting[0][0])
    await asyncio.sleep(0)
    assert len(wire.dispatcher.frames) == 2
    wire.finish(0, b"first")
    assert b"".join(wire.transport.written) == b"firstA second"


async def test_with_too_many_answers_outstanding_no_further_request_is_handled() -> None:
    wire = Wire()
    wire.receive(frame(b"O" * 8) * (MAX_OUTSTANDING_ANSWERS + 3))
    assert len(wire.dispatcher.frames) == MAX_OUTSTANDING_ANSWERS
    wire.finish(1)
    assert len(wire.dispatcher.frames) == MAX_OUTSTANDING_ANSWERS, "it stands behind one that waits"
    wire.finish(0)
    assert len(wire.dispatcher.frames) == MAX_OUTSTANDING_ANSWERS + 2


async def test_ready_answers_that_stand_behind_one_that_waits_are_bounded_in_bytes() -> None:
    wire = Wire()
    wire.receive(frame(b"O" * 8) + frame(b"A" * 10_000) * 20)
    assert len(wire.dispatcher.frames) == 1 + -(-WRITE_HIGH_WATER_BYTES // 10_000)
    wire.finish()
    assert len(wire.dispatcher.frames) > 6


async def test_who_goes_is_waited_for_no_more() -> None:
    wire = Wire()
    wire.receive(frame(b"O" * 8) + frame(b"M" * 8))
    wire.connection.connection_lost(None)
    assert all(answer.cancelled() for _, answer in wire.dispatcher.waiting)


async def test_what_has_come_whole_is_handled_though_its_client_has_closed() -> None:
    """A producer with acks=0 closes when it has sent all."""
    wire = Wire()
    wire.receive(frame(b"M" * 8) + frame(b"1" * 8) + frame(b"A" * 8) + frame(b"2" * 8) + frame(b"cut" * 8)[:-1])
    assert wire.connection.eof_received(), "the transport stays open"
    await asyncio.sleep(0)
    assert wire.dispatcher.frames == [b"M" * 8], "in order still"
    wire.finish()
    assert wire.dispatcher.frames[1:] == [b"1" * 8, b"A" * 8, b"2" * 8]
    assert wire.transport.written == [b"A" * 8]
    assert wire.transport.closed
    assert len(wire.connections) == 1
    wire.connection.connection_lost(None)
    assert len(wire.connections) == 0


async def test_what_has_come_whole_is_handled_though_its_connection_broke() -> None:
    wire = Wire()
    wire.receive(frame(b"M" * 8) + frame(b"1" * 8) + frame(b"A" * 8) + frame(b"O" * 8) + frame(b"2" * 8))
    wire.connection.connection_lost(ConnectionResetError())
    assert len(wire.connections) == 1, "it counts as long as it is at work"
    await asyncio.sleep(0)
    wire.finish()
    assert wire.dispatcher.frames[1:] == [b"1" * 8, b"A" * 8, b"O" * 8, b"2" * 8]
    assert wire.transport.written == []
    assert wire.dispatcher.waiting[0][1].cancelled(), "nobody waits for an answer"
    assert (len(wire.connections), wire.limits.requests.total, wire.limits.answers.total) == (0, 0, 0)


@pytest.mark.parametrize("breaks", [False, True])
async def test_nobody_waits_for_others_in_the_name_of_a_client_that_has_gone(breaks: bool) -> None:
    wire = Wire()
    wire.receive(frame(b"L" * 8) + frame(b"1" * 8) + frame(b"L" * 8) + frame(b"2" * 8))
    if breaks:
        wire.connection.connection_lost(None)
    else:
        assert wire.connection.eof_received()
    await until(lambda: wire.dispatcher.frames == [b"L" * 8, b"1" * 8, b"L" * 8, b"2" * 8])
    assert all(answer.cancelled() for _, answer in wire.dispatcher.waiting)
    await until(lambda: len(wire.connections) == 0 or wire.transport.closed)


async def test_one_that_did_not_read_is_heard_to_the_end_when_it_breaks() -> None:
    wire = Wire()
    unread(wire, 1_000_000)
    wire.receive(frame(b"1" * 8) + frame(b"2" * 8))
    assert wire.dispatcher.frames == []
    wire.connection.connection_lost(None)
    await until(lambda: wire.dispatcher.frames == [b"1" * 8, b"2" * 8])
    assert (len(wire.connections), wire.limits.answers.total) == (0, 0)


async def test_a_request_of_a_client_that_has_gone_does_not_take_for_ever() -> None:
    wire = Wire()
    wire.receive(frame(b"M" * 8) + frame(b"1" * 8))
    wire.connection.connection_lost(None)
    wire.connection.sweep(wire.connection.last_active + LEFT_SECONDS - 1)
    assert len(wire.connections) == 1
    wire.connection.sweep(wire.connection.last_active + LEFT_SECONDS + 1)
    assert (len(wire.connections), wire.dispatcher.frames) == (0, [b"M" * 8])
    assert wire.dispatcher.waiting[0][1].cancelled()


async def test_a_broker_that_stops_waits_for_no_client_that_has_gone() -> None:
    wire = Wire()
    wire.receive(frame(b"M" * 8) + frame(b"1" * 8))
    wire.connection.connection_lost(None)
    wire.connection.shut()
    assert len(wire.connections) == 0


async def test_a_malformed_request_ends_what_is_left() -> None:
    wire = Wire()
    wire.receive(frame(b"M" * 8) + b"\0\0\0\1x" + frame(b"1" * 8))
    wire.connection.connection_lost(None)
    assert len(wire.connections) == 0


async def test_an_answer_that_is_made_when_its_client_has_gone_takes_no_memory() -> None:
    wire = Wire()
    wire.receive(frame(b"M" * 8))
    wire.dispatcher.waiting[0][1].set_result(None)  # it was being encoded
    wire.connection.connection_lost(None)
    wire.finish(answer=b"x" * 1_000_000)
    assert wire.limits.answers.total == 0


@pytest.mark.parametrize("size", [300_000, 3_000_000])
async def test_a_request_that_is_worked_on_is_in_the_ledger_though_its_client_has_gone(size: int) -> None:
    wire = Wire(request_max_bytes=10_000_000)
    wire.receive(frame(b"M" * size) + frame(b"behind it"))
    assert size <= wire.limits.requests.total <= 2 * size
    wire.connection.connection_lost(None)
    assert wire.limits.requests.total >= size
    wire.dispatcher.last_frame = memoryview(b"")  # the work is done
    await until(lambda: wire.limits.requests.total == 0)


async def test_a_request_that_goes_beyond_its_share_does_so_until_its_work_is_done() -> None:
    wire = Wire(request_max_bytes=10_000_000, queued_max_request_bytes=4_000_000)
    wire.receive(frame(b"M" * 3_900_000))
    assert wire.limits.requests.beyond is not None
    wire.finish()
    assert wire.limits.requests.total >= 3_900_000
    wire.dispatcher.last_frame = memoryview(b"")
    await until(lambda: wire.limits.requests.total == 0)
    assert wire.limits.requests.beyond is None


async def test_a_connection_has_one_request_in_a_turn_when_the_time_of_the_turn_is_spent() -> None:
    wire = Wire()
    other, _ = wire.connect()
    handle = wire.dispatcher.handle

    def slow(connection: BrokerConnection, frame: memoryview) -> None:
        handle(connection, frame)
        wire.turn_seconds += 0.6

    wire.connection._handle = other._handle = slow
    for connection in (wire.connection, other):
        data = frame(b"a" * 8) * 10
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))
    counts = [len(wire.dispatcher.frames)]
    while counts[-1] < 20:
        await asyncio.sleep(0)
        counts.append(len(wire.dispatcher.frames))
    assert max(after - before for before, after in pairwise(counts)) <= 4, "one each, and two in the time of a turn"


async def test_large_requests_of_many_connections_do_not_all_begin_in_one_turn() -> None:
    """Each may cost some milliseconds. Small ones wait for no turn."""
    wire = Wire()
    large, small = frame(b"A" * (LARGE_REQUEST_BYTES + 1)), frame(b"A" * 8)
    handle = wire.dispatcher.handle

    def slow(connection: BrokerConnection, body: memoryview) -> None:
        handle(connection, body)
        wire.turn_seconds += 1.0 if len(body) > LARGE_REQUEST_BYTES else 0.0

    connections = [wire.connect()[0] for _ in range(5)]
    for number, connection in enumerate(connections):
        connection._handle = slow
        data = small if number == 4 else large
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))
    counts = [len(wire.dispatcher.frames)]
    assert counts == [2], "the first, and the small one"
    while counts[-1] < len(connections):
        await asyncio.sleep(0)
        counts.append(len(wire.dispatcher.frames))
    assert {after - before for before, after in pairwise(counts)} <= {0, 1}


async def test_a_closed_connection_handles_nothing_more() -> None:
    wire = Wire()
    wire.connection._handle = lambda connection, frame: connection.close("for this test")  # type: ignore[assignment]
    wire.receive(frame(b"a" * 8) * 3)
    assert wire.connection._received.begin == 12


async def test_a_connection_that_is_held_back_stops_reading_when_its_buffer_is_full() -> None:
    wire = Wire()
    flood = frame(b"M" * 8) + frame(b"a" * 100) * 10_000
    taken = wire.receive(flood)
    assert wire.transport.paused
    assert taken <= INITIAL_BUFFER_BYTES + 12  # the place of the handled frame is free again
    wire.finish()
    assert not wire.transport.paused
    wire.receive(flood[taken:])
    assert len(wire.dispatcher.frames) == 10_001


async def test_a_client_that_does_not_read_is_not_served_and_then_cut_off() -> None:
    wire = Wire()
    unread(wire, 100_000)
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
    wire.connection.sweep(now + FRAME_SECONDS - 1)
    assert not wire.transport.aborted
    wire.connection.sweep(now + FRAME_SECONDS + 1)
    assert wire.transport.aborted


async def test_time_spent_waiting_for_an_answer_counts_neither_as_rest_nor_against_the_frame_behind_it() -> None:
    wire = Wire(idle_seconds=100)
    wire.receive(frame(b"M" * 8) + frame(b"a" * 100)[:50])
    wire.connection.last_active -= 1000
    wire.finish()
    wire.connection.sweep(asyncio.get_running_loop().time() + 5)
    assert not wire.transport.aborted


async def test_an_idle_connection_gives_its_memory_back_and_then_goes() -> None:
    wire = Wire(idle_seconds=100)
    wire.receive(frame(b"a" * 100_000))
    assert wire.limits.requests.total > 0
    now = asyncio.get_running_loop().time()
    wire.connection.sweep(now + 5)
    assert wire.limits.requests.total == 0
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
    first, second = (Holding(wire.limits.requests, "127.0.0.1") for _ in range(2))
    assert first.hold(80_000)
    assert second.hold(100_000), "one at a time may go beyond its share"
    data = frame(b"a" * 100_000)
    taken = wire.receive(data)
    assert wire.transport.paused
    assert wire.dispatcher.frames == []
    first.owe(0)
    second.owe(0)
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
        assert wire.limits.requests.total <= 300_000 + 200_000 + READ_AHEAD_BYTES
        if left == before:
            await until(lambda: any(left[end] and not end[1].paused for end in ends))
    assert wire.dispatcher.frames == [b"a" * 200_000] * 3


async def test_memory_that_others_wait_for_is_given_back_with_the_end_of_a_frame() -> None:
    wire = Wire(queued_max_request_bytes=300_000)
    wire.receive(frame(b"a" * 100_000))
    kept = wire.limits.requests.total
    assert kept > 100_000, "for the next one"
    first, second = (Holding(wire.limits.requests, "127.0.0.1") for _ in range(2))
    assert [holder.hold(100_000) for holder in (first, second)] == [True, False]
    wire.receive(frame(b"b" * 100_000))
    assert wire.limits.requests.total == 100_000


def unread(wire: Wire, size: int) -> None:
    """The client was answered so many bytes, and reads none of them."""
    wire.connection.respond([b"x" * size])
    wire.transport.unsent = size
    wire.connection.pause_writing()


async def test_answers_that_are_not_read_are_in_the_ledger_until_they_are() -> None:
    wire = Wire()
    unread(wire, 1_000_000)
    assert wire.limits.answers.total == 1_000_000
    wire.transport.unsent = 300_000
    wire.connection.sweep(asyncio.get_running_loop().time() + 1)
    assert wire.limits.answers.total == 300_000
    wire.transport.unsent = 10_000
    wire.connection.resume_writing()
    assert wire.limits.answers.total == 0
    unread(wire, 1_000_000)
    wire.connection.connection_lost(None)
    assert wire.limits.answers.total == 0


async def test_slices_of_mapped_files_take_no_memory_from_others() -> None:
    wire = Wire()
    with mmap.mmap(-1, 1_000_000) as mapped:
        view = memoryview(mapped)[5:900_000]
        wire.connection.respond([b"x" * 80_000, view])
        wire.transport.unsent = 979_995
        wire.connection.pause_writing()
        assert wire.limits.answers.total == 80_000
        view.release()


async def test_a_client_may_have_several_large_answers_from_files_under_way() -> None:
    """What is mapped costs no memory: a reader that keeps pace need not wait for its last answer to leave."""
    wire = Wire()
    with mmap.mmap(-1, MAX_UNSENT_BYTES) as mapped:
        view = memoryview(mapped)
        wire.connection.respond([view[:1_000_000]])
        wire.transport.unsent = 1_000_000
        wire.connection.pause_writing()
        wire.receive(frame(b"a" * 8))
        assert len(wire.dispatcher.frames) == 1
        wire.transport.unsent = MAX_UNSENT_BYTES
        wire.connection.respond([view[1_000_000:]])
        wire.receive(frame(b"b" * 8))
        assert len(wire.dispatcher.frames) == 1
        wire.transport.unsent = 0
        wire.connection.resume_writing()
        assert len(wire.dispatcher.frames) == 2
        await until(lambda: sum(map(len, wire.transport.written)) == MAX_UNSENT_BYTES)
        view.release()


def mapped_answer(size: int) -> tuple[mmap.mmap, bytes]:
    """A file with so many bytes, mapped, and what it holds."""
    mapped, content = mmap.mmap(-1, size), random.Random(1).randbytes(size)
    mapped[:] = content
    return mapped, content


async def test_a_large_answer_leaves_in_portions_in_order_while_others_have_their_turn() -> None:
    wire = Wire()
    mapped, content = mapped_answer(10 * PORTION_BYTES + 5)
    wire.write_seconds = 1.0  # the turn is spent with one portion
    wire.connection.respond([b"head", memoryview(mapped)])
    wire.connection.respond([b"next"])
    portions = [len(wire.transport.written)]
    while wire.transport.written == [] or b"".join(wire.transport.written)[-4:] != b"next":
        await asyncio.sleep(0)
        portions.append(len(wire.transport.written))
    assert b"".join(wire.transport.written) == b"head" + content + b"next"
    assert max(map(len, wire.transport.written)) <= PORTION_BYTES
    assert max(after - before for before, after in pairwise(portions)) == 1, "one in each turn"


async def test_large_answers_of_several_connections_leave_side_by_side() -> None:
    """One that reads quickly keeps none from getting anything."""
    wire = Wire()
    mapped, content = mapped_answer(8 * PORTION_BYTES)
    ends = [(wire.connection, wire.transport), wire.connect(), wire.connect()]
    wire.write_seconds = 1.0
    for connection, _ in ends:
        connection.respond([memoryview(mapped)])
    while any(len(transport.written) < 8 for _, transport in ends):
        await asyncio.sleep(0)
        counts = [len(transport.written) for _, transport in ends]
        assert max(counts) - min(counts) <= 2
    assert {b"".join(transport.written) for _, transport in ends} == {content}


async def test_of_a_large_answer_nothing_more_is_given_to_a_client_that_does_not_read() -> None:
    wire = Wire()
    mapped, content = mapped_answer(4 * PORTION_BYTES)
    wire.connection.pause_writing()
    wire.connection.respond([memoryview(mapped)])
    await asyncio.sleep(0)
    assert wire.transport.written == []
    wire.connection.resume_writing()
    await until(lambda: b"".join(wire.transport.written) == content)


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_connection_is_closed_when_all_of_a_large_answer_has_left(leaves: bool) -> None:
    """The broker stops, or the client has said that it sends no more."""
    wire = Wire()
    mapped, content = mapped_answer(4 * PORTION_BYTES)
    wire.connection.pause_writing()
    wire.connection.respond([memoryview(mapped)])
    if leaves:
        wire.receive(frame(b"a" * 8))
        assert wire.connection.eof_received()
    else:
        wire.connection.shut()
    assert not wire.transport.closed
    wire.connection.resume_writing()
    assert not wire.transport.closed
    await until(lambda: wire.transport.closed)
    assert b"".join(wire.transport.written) == content


async def test_what_a_client_that_is_cut_off_had_to_come_is_let_go() -> None:
    wire = Wire()
    mapped, _ = mapped_answer(4 * PORTION_BYTES)
    wire.connection.pause_writing()
    wire.connection.respond([memoryview(mapped)])
    wire.connection.connection_lost(None)
    mapped.close()  # BufferError, if anything still held a slice


async def test_requests_wait_while_unread_answers_take_the_memory_and_who_does_not_read_goes() -> None:
    wire = Wire(queued_max_response_bytes=1_000_000)
    slow, slow_end = wire.connection, wire.transport
    unread(wire, 900_000)
    wire.connection, wire.transport = wire.connect()
    wire.receive(frame(b"A" * 8))
    assert wire.dispatcher.frames == []
    slow.sweep(slow.last_active + PROGRESS_WINDOW_SECONDS + 1)
    assert slow_end.aborted
    slow.connection_lost(None)
    await until(lambda: wire.dispatcher.frames == [b"A" * 8])


async def test_a_slow_reader_goes_on_while_nobody_waits_for_its_memory() -> None:
    wire = Wire(queued_max_response_bytes=1_000_000)
    unread(wire, 300_000)
    wire.connection.sweep(wire.connection.last_active + RESPONSE_STALL_SECONDS - 1)
    assert not wire.transport.aborted


async def test_an_upload_that_stops_goes_when_others_wait_for_memory() -> None:
    wire = Wire(queued_max_request_bytes=1_000_000)
    wire.receive(frame(b"a" * 500_000)[:400_000])
    stopped, stopped_end = wire.connection, wire.transport
    later = stopped.last_active + PROGRESS_WINDOW_SECONDS + 1
    stopped.sweep(later)
    assert not stopped_end.aborted, "nobody waits"
    assert Holding(wire.limits.requests, "127.0.0.2").hold(900_000), "one may go beyond its share"
    assert not Holding(wire.limits.requests, "127.0.0.2").hold(900_000)
    stopped.sweep(later + PROGRESS_WINDOW_SECONDS + 1)
    assert stopped_end.aborted


async def test_an_upload_that_may_not_go_on_is_not_late() -> None:
    wire = Wire(queued_max_request_bytes=150_000)
    first, second = (Holding(wire.limits.requests, "127.0.0.1") for _ in range(2))
    assert first.hold(80_000)
    assert second.hold(100_000)
    data = frame(b"a" * 100_000)
    taken = wire.receive(data)
    wire.connection.sweep(asyncio.get_running_loop().time() + 10 * FRAME_SECONDS)
    assert not wire.transport.aborted
    first.owe(0)
    second.owe(0)
    await until(lambda: not wire.transport.paused)
    wire.connection.sweep(asyncio.get_running_loop().time() + FRAME_SECONDS - 1)
    assert not wire.transport.aborted
    wire.receive(data[taken:])
    assert wire.dispatcher.frames == [b"a" * 100_000]


async def test_a_large_frame_holds_memory_as_it_comes_and_is_never_copied() -> None:
    wire = Wire(request_max_bytes=100_000_000)
    data = frame(bytes(range(250)) * 40_000)
    places = set()
    for start in range(0, len(data), 700_000):
        wire.receive(data[start : start + 700_000])
        so_far = start + 700_000
        if LARGE_FRAME_BYTES < so_far < len(data):
            assert so_far <= wire.limits.requests.total <= so_far + LARGE_FRAME_BYTES
            places.add(id(wire.connection._received._view))
    assert len(places) == 1
    assert wire.dispatcher.frames == [data[4:]]
    assert wire.limits.requests.total == 0, "few requests are so large: the buffer is given up"
    wire.receive(frame(b"next one"))
    assert wire.dispatcher.frames[-1] == b"next one"


async def test_a_large_frame_that_comes_fast_lets_others_have_their_turn() -> None:
    wire = Wire(request_max_bytes=100_000_000)
    data = frame(b"a" * 3_000_000)
    assert wire.connections.turn.is_left(), "the time of this turn begins to run"
    wire.turn_seconds += 2.0
    taken = wire.receive(data)
    assert wire.transport.paused
    assert taken < LARGE_FRAME_BYTES
    while taken < len(data):
        await asyncio.sleep(0)
        taken += wire.receive(data[taken:])
    assert wire.dispatcher.frames == [data[4:]]


async def test_a_slow_line_may_carry_a_large_frame() -> None:
    wire = Wire(request_max_bytes=100_000_000)
    wire.receive(frame(b"a" * 20 * MIN_FRAME_RATE)[: 10 * MIN_FRAME_RATE])
    now = asyncio.get_running_loop().time()
    wire.connection.sweep(now + FRAME_SECONDS + 9)
    assert not wire.transport.aborted
    wire.connection.sweep(now + FRAME_SECONDS + 11)
    assert wire.transport.aborted


async def test_connections_beyond_the_limits_are_refused_and_counted_out() -> None:
    wire = Wire(max_connections=2)
    second, second_transport = wire.connect()
    _, third_transport = wire.connect()
    assert not second_transport.aborted
    assert third_transport.aborted
    second.connection_lost(None)
    assert wire.limits.connections == 1
    assert wire.limits.per_ip == {"127.0.0.1": 1}


async def test_connections_are_counted_against_the_descriptors_that_are_theirs() -> None:
    """Whatever the numbers of their sockets are: logs may have taken the low ones."""
    wire = Wire(connection_descriptors=3)
    refused = [wire.connect() for _ in range(4)]
    assert [end.aborted for _, end in refused] == [False, False, True, True]
    wire.connection.connection_lost(None)
    assert not wire.connect()[1].aborted
    assert wire.limits.connections == 3


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
