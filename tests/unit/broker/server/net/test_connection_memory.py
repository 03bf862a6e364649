"""The shares of connections in the common memory budget, and which connections wait or are closed."""

from __future__ import annotations

import asyncio
import mmap
from struct import pack
from types import SimpleNamespace

import pytest
from tests.support.wires import Wire, frame, unread, until

from oncelog_broker.security.principal import Principal
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.frame_reader import LARGE_FRAME_BYTES, READ_AHEAD_BYTES
from oncelog_broker.server.net.limits import (
    FRAME_SECONDS,
    MIN_FRAME_RATE,
    RESPONSE_STALL_SECONDS,
)
from oncelog_broker.server.net.memory_budget import PROGRESS_WINDOW_SECONDS, Holding


async def test_an_answer_that_is_made_when_its_client_has_gone_takes_no_memory() -> None:
    wire = Wire()
    wire.receive(frame(b"M" * 8))
    wire.dispatcher.waiting[0][1].set_result(None)  # the response is being encoded
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
    wire.dispatcher.last_frame = memoryview(b"")  # the work for the request is done
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


async def test_unauthenticated_connections_share_a_small_memory_budget() -> None:
    wire = Wire()
    wire.limits.logins.limit = 2_000_000
    gate = SimpleNamespace(max_frame_bytes=500_000)
    ends = [wire.connect(gate) for _ in range(8)]
    for wire.connection, wire.transport in ends:
        wire.receive(frame(b"a" * 500_000)[:-1])  # the rest of this frame never arrives
    assert any(transport.paused for _, transport in ends)
    assert 1_000_000 < wire.limits.logins.total <= 2_000_000 + 500_000
    assert wire.limits.requests.total == 0
    wire.connection, wire.transport = wire.connect(gate)
    wire.receive(frame(b"login" * 1000))
    assert wire.dispatcher.frames == [b"login" * 1000]


async def test_memory_of_a_connection_moves_to_the_common_budget_at_login() -> None:
    wire = Wire()
    wire.connection, wire.transport = wire.connect(SimpleNamespace(max_frame_bytes=500_000))
    wire.receive(frame(b"a" * 100_000))
    kept = wire.limits.logins.total
    assert kept > 100_000
    wire.connection.authenticated(Principal("User", "alice"), may_expire=False)
    assert (wire.limits.logins.total, wire.limits.requests.total) == (0, kept)
    wire.receive(frame(b"b" * 600_000))
    assert wire.dispatcher.frames[-1] == b"b" * 600_000


async def test_memory_of_earlier_answers_is_released_while_the_last_one_waits() -> None:
    """The response to a wrong password is delayed. During the delay, no later request of the client is handled, and the
    response takes no memory.
    """
    wire = Wire()
    handle = wire.dispatcher.handle

    def refuse(connection: BrokerConnection, asked: memoryview) -> None:
        connection.close_after_answer()
        handle(connection, asked)

    wire.dispatcher.handle = refuse  # type: ignore[method-assign]
    wire.connection, wire.transport = wire.connect()
    wire.receive(frame(b"L" * 200_000) + frame(b"behind it"))
    assert wire.limits.requests.total == 0
    assert not wire.transport.paused, "what comes still is taken: else the answer may be lost with it"
    wire.finish()
    assert wire.transport.closed
    assert len(wire.dispatcher.frames) == 1


async def test_lengths_claimed_by_silent_clients_reserve_no_memory() -> None:
    wire = Wire(queued_max_request_bytes=256_000_000, request_max_bytes=100_000_000)
    for _ in range(3):
        connection, _ = wire.connect()
        claim = pack(">i", 100_000_000) + b"x" * 10_000
        connection.get_buffer(-1)[: len(claim)] = claim
        connection.buffer_updated(len(claim))
    wire.receive(frame(b"a" * 1_000_000))
    assert wire.dispatcher.frames == [b"a" * 1_000_000]


async def test_frames_that_exceed_the_memory_together_are_finished_one_by_one() -> None:
    """All frames have begun, no frame is complete, and no memory is left. One connection may exceed the limit, because
    otherwise the connections would wait for each other's memory for ever.
    """
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


async def test_unread_answers_delay_requests_until_their_client_is_cut_off() -> None:
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


async def test_a_connection_waiting_for_memory_reads_nothing() -> None:
    wire = Wire(queued_max_response_bytes=1_000_000)
    slow = wire.connection
    unread(wire, 900_000)
    wire.connection, wire.transport = wire.connect()
    wire.receive(frame(b"A" * 8))
    assert wire.transport.paused
    wire.connection.resume_writing()
    assert wire.transport.paused, "the client is no longer slow, and still there is no memory for an answer"
    for connection in (slow, wire.connection):
        connection.connection_lost(None)


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
    assert wire.connections.budget.claim(), "the time of this turn begins to run"
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
    """The numbers of the sockets' descriptors do not matter, because logs may have the low numbers."""
    wire = Wire(connection_descriptors=3)
    refused = [wire.connect() for _ in range(4)]
    assert [end.aborted for _, end in refused] == [False, False, True, True]
    wire.connection.connection_lost(None)
    assert not wire.connect()[1].aborted
    assert wire.limits.connections == 3


async def test_a_single_address_cannot_take_all_connections() -> None:
    wire = Wire(max_connections_per_ip=1)
    _, second = wire.connect()
    assert second.aborted
