"""A large response is sent in portions as the client reads, and no other response overtakes it."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.served import Wire

from oncelog_broker.runtime.loop_budget import LoopBudget
from oncelog_broker.runtime.round_robin import RoundRobin
from oncelog_broker.server.net.write_buffer import WriteBuffer

PORTION = 100


class Line(Wire):
    """Records each written portion. Writing a portion uses `seconds` of the turn."""

    def __init__(self) -> None:
        super().__init__()
        self.portions: list[int] = []
        self.now = 0.0
        self.seconds = 0.0

    def writelines(self, list_of_data: object) -> None:
        data = b"".join(list_of_data)  # type: ignore[arg-type]
        self.portions.append(len(data))
        self.now += self.seconds
        super().write(data)

    def write(self, data: object) -> None:
        self.writelines([data])


class Leaving:
    def __init__(self) -> None:
        self.line = Line()
        self.clear = 0
        self.scheduler = RoundRobin(LoopBudget(lambda: self.line.now))
        self.buffer = WriteBuffer(self.scheduler)
        self.buffer.open(self.line, self._on_clear, PORTION)

    def _on_clear(self) -> None:
        self.clear += 1

    def write(self, *sizes: int) -> bytes:
        """Write one piece of each of these sizes, with different bytes; return all bytes."""
        pieces = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
        self.buffer.write(pieces, sum(sizes))
        return b"".join(pieces)


@pytest.fixture
async def leaving() -> Leaving:
    return Leaving()


async def test_a_small_answer_goes_straight_to_the_transport(leaving: Leaving) -> None:
    expected = leaving.write(40, 60)
    assert (leaving.line.bytes, leaving.line.portions, leaving.buffer.waiting_bytes) == (expected, [100], 0)


async def test_a_large_answer_leaves_in_portions_while_the_turn_lasts(leaving: Leaving) -> None:
    expected = leaving.write(250, 30)
    assert leaving.line.bytes == expected
    assert max(leaving.line.portions) <= PORTION


async def test_the_rest_leaves_in_later_turns_and_nothing_overtakes_it(leaving: Leaving) -> None:
    leaving.line.seconds = 1.0
    expected = leaving.write(350)
    assert 0 < len(leaving.line.bytes) < 350
    assert leaving.buffer.waiting_bytes == 350 - len(leaving.line.bytes)
    expected += leaving.write(10)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (leaving.line.bytes, leaving.buffer.waiting_bytes) == (expected, 0)
    assert leaving.clear == 1


async def test_no_bytes_are_written_while_the_client_does_not_read(leaving: Leaving) -> None:
    leaving.line.seconds = 1.0
    expected = leaving.write(350)
    leaving.buffer.stall()
    before = len(leaving.line.bytes)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(leaving.line.bytes) == before
    leaving.buffer.flow()
    for _ in range(10):
        await asyncio.sleep(0)
    assert leaving.line.bytes == expected


async def test_a_closed_buffer_writes_no_more(leaving: Leaving) -> None:
    leaving.line.seconds = 1.0
    leaving.write(350)
    before = len(leaving.line.bytes)
    leaving.buffer.close()
    for _ in range(10):
        await asyncio.sleep(0)
    assert (len(leaving.line.bytes), leaving.buffer.waiting_bytes, leaving.clear) == (before, 0, 0)
