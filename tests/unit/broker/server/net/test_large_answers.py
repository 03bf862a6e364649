"""Large responses are sent in portions, and large requests start in different turns of the loop, so that other clients
are served in between.
"""

from __future__ import annotations

import asyncio
import mmap
import random
from itertools import pairwise

import pytest
from tests.support.wires import Wire, frame, until

from oncelog_broker.server.net.answer_queue import coalesce
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.limits import (
    LARGE_REQUEST_BYTES,
    MAX_UNSENT_BYTES,
)
from oncelog_broker.server.net.write_buffer import PORTION_BYTES


async def test_large_requests_of_many_connections_do_not_all_begin_in_one_turn() -> None:
    """Handling a large request may take some milliseconds of a turn of the loop. Small requests are handled in the same
    turn of the
    loop.
    """
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


async def test_a_large_request_has_its_turn_though_others_use_up_all_turns() -> None:
    """A client with pipelined requests works in each turn before the large request."""
    wire = Wire()
    handle = wire.dispatcher.handle

    def slow(connection: BrokerConnection, body: memoryview) -> None:
        handle(connection, body)
        wire.turn_seconds += 1.0

    (greedy, _), (honest, _) = wire.connect(), wire.connect()
    for connection, data in (
        (greedy, frame(b"A" * 8) * 20),
        (honest, frame(b"A" * (LARGE_REQUEST_BYTES + 1))),
    ):
        connection._handle = slow
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))
    assert max(map(len, wire.dispatcher.frames)) < LARGE_REQUEST_BYTES
    for _ in range(4):
        await asyncio.sleep(0)
    assert max(map(len, wire.dispatcher.frames)) > LARGE_REQUEST_BYTES
    assert len(wire.dispatcher.frames) < 20


async def test_a_client_may_have_several_large_answers_from_files_under_way() -> None:
    """Mapped files need no memory, so a reader that keeps up need not wait until its previous response is sent."""
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
    """Return a mapped file of this size, and its content."""
    mapped, content = mmap.mmap(-1, size), random.Random(1).randbytes(size)
    mapped[:] = content
    return mapped, content


async def test_a_large_answer_leaves_in_portions_in_order_while_others_have_their_turn() -> None:
    wire = Wire()
    mapped, content = mapped_answer(10 * PORTION_BYTES + 5)
    wire.write_seconds = 1.0  # writing one portion takes the entire turn of the loop
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
    """Other clients receive their bytes even while one client reads a large response very fast."""
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


async def test_a_client_that_does_not_read_gets_no_more_of_a_large_answer() -> None:
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
    """The broker stops, or the client has closed its sending direction."""
    wire = Wire()
    mapped, content = mapped_answer(4 * PORTION_BYTES)
    wire.connection.pause_writing()
    wire.connection.respond([memoryview(mapped)])
    if leaves:
        wire.receive(frame(b"a" * 8))
        assert wire.connection.eof_received()
    else:
        wire.connection.shut()
        assert wire.connection.eof_received(), "a client that sends no more still reads"
    assert not wire.transport.closed
    wire.connection.resume_writing()
    assert not wire.transport.closed
    await until(lambda: wire.transport.closed)
    assert b"".join(wire.transport.written) == content


async def test_the_pending_answer_of_a_client_that_is_cut_off_is_released() -> None:
    wire = Wire()
    mapped, _ = mapped_answer(4 * PORTION_BYTES)
    wire.connection.pause_writing()
    wire.connection.respond([memoryview(mapped)])
    wire.connection.connection_lost(None)
    mapped.close()  # raises BufferError if a slice of the mapping still exists


def test_coalesce_joins_small_parts_and_leaves_large_ones_alone() -> None:
    large = memoryview(b"x" * 20_000)
    parts = coalesce([b"a", b"b", large, b"c", large])
    assert parts[0] == b"ab"
    assert parts[1] is large
    assert parts[2] == b"c"
    assert parts[3] is large
