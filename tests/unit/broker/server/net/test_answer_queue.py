"""Responses of a connection are sent in the order of the requests, and count against a limit while the client does not
read.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.served import Wire

from oncelog_broker.runtime.disk import RealDisk
from oncelog_broker.runtime.loop_budget import LoopBudget
from oncelog_broker.runtime.round_robin import RoundRobin
from oncelog_broker.server.net.answer_queue import (
    MAX_OUTSTANDING_ANSWERS,
    SCATTER_BYTES,
    AnswerQueue,
    coalesce,
    heap_size_of,
)
from oncelog_broker.server.net.connection_state import Hold, Lifecycle
from oncelog_broker.server.net.limits import WRITE_HIGH_WATER_BYTES, Limits


class Line(Wire):
    """A client that reads nothing while `unread` is not 0; the transport then buffers that many bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = 0

    def get_write_buffer_size(self) -> int:
        return self.unread


class Asked:
    """The response queue of a connection, with its client."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits(100, 100, 1 << 20, -1, -1, 600.0)
        self.line = Line()
        self.lifecycle = Lifecycle()
        self.queue = AnswerQueue(self.limits, "127.0.0.1", RoundRobin(LoopBudget(lambda: 0.0)), self.lifecycle)
        self.queue.open(self.line, lambda: None)

    @property
    def takes_more(self) -> bool:
        """Whether the connection may read another request, given the number of outstanding responses."""
        return not self.lifecycle.holds & Hold.ANSWERS_FULL

    def reserve(self) -> tuple[asyncio.Future[None], object]:
        waits_for = asyncio.get_running_loop().create_future()
        return waits_for, self.queue.reserve(waits_for)


@pytest.fixture
async def asked() -> Asked:
    return Asked()


async def test_an_answer_with_none_before_it_is_sent_at_once(asked: Asked) -> None:
    asked.queue.put([b"a", b"b"])
    assert asked.line.bytes == b"ab"
    assert not asked.queue.is_waiting


async def test_answers_leave_in_the_order_of_the_requests(asked: Asked) -> None:
    queue = asked.queue
    _, first = asked.reserve()
    queue.put([b"2"])
    _, third = asked.reserve()
    queue.put([b"4"])
    queue.put([b"3"], third)
    queue.finish(third)
    assert asked.line.bytes == b"", "all stand behind the first"
    queue.put([b"1"], first)
    queue.finish(first)
    assert asked.line.bytes == b"1234"
    assert not queue.is_waiting


async def test_a_request_without_an_answer_lets_the_next_ones_pass(asked: Asked) -> None:
    """A Produce request with acks=0 has no response."""
    _, none = asked.reserve()
    asked.queue.put([b"next"])
    asked.queue.finish(none)
    assert asked.line.bytes == b"next"


async def test_answers_of_requests_handled_together_leave_together(asked: Asked) -> None:
    asked.queue.hold()
    asked.queue.put([b"1"])
    _, slot = asked.reserve()
    asked.queue.put([b"2"], slot)
    asked.queue.finish(slot)
    assert asked.line.bytes == b""
    asked.queue.release()
    assert asked.line.bytes == b"12"


async def test_no_further_request_is_handled_with_too_many_answers_outstanding(asked: Asked) -> None:
    slots = [asked.reserve()[1] for _ in range(MAX_OUTSTANDING_ANSWERS - 1)]
    assert asked.takes_more
    slots.append(asked.reserve()[1])
    assert not asked.takes_more
    asked.queue.finish(slots[0])
    assert asked.takes_more


async def test_ready_answers_behind_one_that_waits_are_back_pressure(asked: Asked) -> None:
    _, first = asked.reserve()
    asked.queue.put([bytes(WRITE_HIGH_WATER_BYTES)])
    assert not asked.takes_more
    asked.queue.put([bytes(1)])
    assert asked.queue.memory.held == WRITE_HIGH_WATER_BYTES + 1 == asked.limits.answers.used
    asked.queue.finish(first)
    assert asked.takes_more
    assert asked.limits.answers.used == 0


async def test_a_client_that_does_not_read_holds_memory_until_it_does(asked: Asked) -> None:
    answer = bytes(WRITE_HIGH_WATER_BYTES + 1)
    asked.queue.put([answer])
    asked.line.unread = len(answer)
    asked.queue.stall(now=10.0)
    assert asked.queue.unsent_heap_bytes == len(answer) == asked.limits.answers.used
    assert not asked.takes_more
    assert asked.queue.sent == 0
    assert asked.queue.stalled_seconds(25.0) == 15.0
    asked.line.unread -= 1
    assert asked.queue.stalled_seconds(40.0) == 0.0, "it reads, slowly"
    asked.line.unread = 0
    asked.queue.flow()
    assert (asked.takes_more, asked.limits.answers.used) == (True, 0)
    assert asked.queue.sent == len(answer)


async def test_slices_of_mapped_files_are_not_on_the_heap(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        file.write(bytes(2 * SCATTER_BYTES))
    mapped = RealDisk().open(str(tmp_path / "log"))
    view = mapped.view(0, 2 * SCATTER_BYTES)
    assert heap_size_of([view, b"1234", memoryview(b"56")]) == 6
    mapped.close()


def test_small_parts_are_joined_and_large_ones_stay_as_they_are() -> None:
    large = memoryview(bytes(SCATTER_BYTES))
    assert coalesce([b"a", b"b"]) == [b"ab"]
    pieces = coalesce([b"a", b"b", large, b"c", b"d"])
    assert [bytes(piece) for piece in pieces] == [b"ab", bytes(large), b"cd"]
    assert pieces[1] is large


async def test_closing_cancels_waiting_answers_and_releases_memory(asked: Asked) -> None:
    waits_for, slot = asked.reserve()
    asked.queue.put([bytes(2 * WRITE_HIGH_WATER_BYTES)])
    asked.queue.close()
    assert waits_for.cancelled()
    assert asked.limits.answers.used == 0
    asked.queue.put([b"late"], slot)
    asked.queue.finish(slot)
    assert asked.line.bytes == b""


async def test_only_fully_read_long_polls_are_abandoned(asked: Asked) -> None:
    loop = asyncio.get_running_loop()
    poll, unread, other = loop.create_future(), loop.create_future(), loop.create_future()
    asked.queue.reserve(poll, is_long_poll=True)
    asked.queue.reserve(unread, is_long_poll=True, is_unread=True)
    asked.queue.reserve(other)
    asked.queue.stop_long_polls()
    assert [future.cancelled() for future in (poll, unread, other)] == [True, False, False]
    asked.queue.close()
