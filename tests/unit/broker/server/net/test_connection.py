"""BrokerConnection parses frames and sends responses, tested with a recording transport."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.wires import Wire, frame, unread, until

from oncelog_broker.server.net.answer_queue import MAX_OUTSTANDING_ANSWERS
from oncelog_broker.server.net.connection import LEFT_SECONDS, BrokerConnection
from oncelog_broker.server.net.frame_reader import INITIAL_BUFFER_BYTES
from oncelog_broker.server.net.limits import (
    FRAME_SECONDS,
    RESPONSE_STALL_SECONDS,
    WRITE_HIGH_WATER_BYTES,
)


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


async def test_a_request_without_answer_delays_no_other() -> None:
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


async def test_no_further_request_is_handled_while_too_many_answers_are_outstanding() -> None:
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


async def test_a_long_poll_of_a_disconnected_client_is_abandoned() -> None:
    wire = Wire()
    wire.receive(frame(b"O" * 8) + frame(b"M" * 8))
    wire.connection.connection_lost(None)
    assert all(answer.cancelled() for _, answer in wire.dispatcher.waiting)


async def test_a_complete_request_is_handled_although_its_client_closed() -> None:
    """A producer with acks=0 closes the connection when it has sent all records."""
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


async def test_a_complete_request_is_handled_although_its_connection_broke() -> None:
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


def goes(wire: Wire, breaks: bool) -> None:
    if breaks:
        wire.connection.connection_lost(None)
    else:
        assert wire.connection.eof_received(), "the transport stays open"


@pytest.mark.parametrize("breaks", [False, True])
async def test_a_request_being_decoded_is_handled_although_its_client_disconnected(breaks: bool) -> None:
    """The client has sent only this request; the result is the same for a long request and for the first request of its
    API.
    """
    wire = Wire()
    wire.receive(frame(b"U" * 8))
    goes(wire, breaks)
    await asyncio.sleep(0)
    slot, answer = wire.dispatcher.waiting[0]
    assert not answer.cancelled()
    assert len(wire.connections) == 1, "it counts as long as it is at work"
    wire.connection.begins(slot)
    await asyncio.sleep(0)
    assert not answer.cancelled(), "it waits for nobody else"
    wire.finish(answer=b"answer")
    assert wire.transport.written == ([] if breaks else [b"answer"])
    assert len(wire.connections) == 0 or wire.transport.closed


async def test_a_decoded_long_poll_of_a_disconnected_client_is_abandoned() -> None:
    wire = Wire()
    wire.receive(frame(b"U" * 8))
    slot, answer = wire.dispatcher.waiting[0]
    wire.connection.begins(slot)
    wire.connection.connection_lost(None)
    assert answer.cancelled()
    assert (len(wire.connections), wire.limits.requests.total) == (0, 0)


@pytest.mark.parametrize("breaks", [False, True])
async def test_a_long_poll_that_is_still_decoded_has_its_effects_and_does_not_wait(breaks: bool) -> None:
    wire = Wire()
    wire.receive(frame(b"U" * 8 + b"L"))
    goes(wire, breaks)
    slot, answer = wire.dispatcher.waiting[0]
    await asyncio.sleep(0)
    assert not answer.cancelled()
    wire.connection.begins(slot)
    assert not answer.cancelled(), "not before its handler has it"
    await until(answer.cancelled)
    await until(lambda: len(wire.connections) == 0 or wire.transport.closed)


async def test_an_endless_decoding_is_abandoned() -> None:
    wire = Wire()
    wire.receive(frame(b"U" * 8))
    wire.connection.connection_lost(None)
    wire.connection.sweep(wire.connection.last_active + LEFT_SECONDS + 1)
    assert len(wire.connections) == 0
    assert wire.dispatcher.waiting[0][1].cancelled()


@pytest.mark.parametrize("breaks", [False, True])
async def test_a_request_of_a_disconnected_client_does_not_wait_for_others(breaks: bool) -> None:
    wire = Wire()
    wire.receive(frame(b"L" * 8) + frame(b"1" * 8) + frame(b"L" * 8) + frame(b"2" * 8))
    goes(wire, breaks)
    await until(lambda: wire.dispatcher.frames == [b"L" * 8, b"1" * 8, b"L" * 8, b"2" * 8])
    assert all(answer.cancelled() for _, answer in wire.dispatcher.waiting)
    await until(lambda: len(wire.connections) == 0 or wire.transport.closed)


async def test_requests_of_a_client_that_never_read_are_handled_when_its_connection_breaks() -> None:
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


async def test_a_malformed_request_ends_the_handling_of_the_rest() -> None:
    wire = Wire()
    wire.receive(frame(b"M" * 8) + b"\0\0\0\1x" + frame(b"1" * 8))
    wire.connection.connection_lost(None)
    assert len(wire.connections) == 0


async def test_a_connection_has_one_request_per_loop_turn_when_the_turn_is_spent() -> None:
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


async def test_no_request_behind_the_last_one_is_handled() -> None:
    """A login was refused, so later requests must not be handled, even if the client disconnects."""
    wire = Wire()
    wire.receive(frame(b"M" * 8))
    wire.connection.close_after_answer()
    wire.receive(frame(b"1" * 8))
    assert not wire.connection.eof_received(), "nothing is to be handled, and nothing to be sent"
    wire.connection.connection_lost(None)
    wire.finish(answer=b"refused")
    await asyncio.sleep(0)
    assert wire.dispatcher.frames == [b"M" * 8]
    assert len(wire.connections) == 0


async def test_the_last_request_is_answered_and_then_the_connection_is_closed() -> None:
    wire = Wire()
    wire.receive(frame(b"M" * 8))
    wire.connection.close_after_answer()
    wire.receive(frame(b"1" * 8))
    assert not wire.transport.closed
    wire.finish(answer=b"refused")
    await asyncio.sleep(0)
    assert (wire.transport.written, wire.transport.closed) == ([b"refused"], True)
    assert wire.dispatcher.frames == [b"M" * 8]


async def test_a_connection_that_has_ended_is_closed_again_without_harm() -> None:
    wire = Wire()
    wire.connection.connection_lost(None)
    wire.connection.close("again")
    wire.connection.shut()
    wire.connection.throttle(1000)
    assert len(wire.connections) == 0
    assert wire.connection._unthrottle is None


async def test_requests_of_a_spent_loop_turn_wait_for_the_next_one() -> None:
    wire = Wire()
    wire.connections.budget.claim()
    wire.turn_seconds = 2.0
    wire.receive(frame(b"1" * 8) + frame(b"2" * 8))
    wire.receive(frame(b"3" * 8))
    assert wire.dispatcher.frames == [b"1" * 8]
    await asyncio.sleep(0)
    assert wire.dispatcher.frames[:2] == [b"1" * 8, b"2" * 8]


async def test_a_connection_whose_client_leaves_in_a_spent_loop_turn_ends_in_the_next_one() -> None:
    """So other clients do not wait while one client closes thousands of connections at once."""
    wire = Wire()
    wire.connections.budget.claim()
    wire.turn_seconds = 2.0
    wire.connection.connection_lost(None)
    assert len(wire.connections) == 1
    await asyncio.sleep(0)
    assert len(wire.connections) == 0


async def test_a_connection_whose_end_waits_for_the_next_loop_turn_ends_at_once_if_the_broker_stops() -> None:
    wire = Wire()
    wire.connections.budget.claim()
    wire.turn_seconds = 2.0
    wire.connection.connection_lost(None)
    wire.connection.shut()
    assert len(wire.connections) == 0
    await asyncio.sleep(0)
    assert len(wire.connections) == 0


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
    assert taken <= INITIAL_BUFFER_BYTES + 12  # the buffer space of the handled frame is free again
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


@pytest.mark.parametrize("first", [0, 1])
async def test_the_last_answer_of_a_connection_leaves_behind_those_before_it(first: int) -> None:
    """A client whose re-authentication failed gets the error response, even with requests in flight."""
    wire = Wire()
    wire.receive(frame(b"O first ") + frame(b"M last  ") + frame(b"A behind"))
    wire.connection.close_after_answer()
    for number, answer in ((0, b"first"), (0, b"last")) if first == 0 else ((1, b"last"), (0, b"first")):
        assert not wire.transport.closed
        wire.finish(number, answer)
    assert b"".join(wire.transport.written) == b"firstlast"
    assert wire.transport.closed
    assert len(wire.dispatcher.frames) == 2, "nothing behind it is handled"
