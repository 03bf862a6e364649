"""Thousands of timers share their wake-ups."""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter
from itertools import count

import pytest

from oncelog_broker.runtime.tasks import FIRED_PER_TURN, Deadlines


async def test_a_deadline_that_raises_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The deadlines in a bucket belong to different clients."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)  # time is frozen, so that all deadlines are in one bucket
    deadlines, fired = Deadlines(), asyncio.Event()

    def throw() -> None:
        raise ValueError("thrown by a timer")

    deadlines.after(0.01, throw)
    deadlines.after(0.01, fired.set)
    monkeypatch.undo()
    async with asyncio.timeout(10):
        await fired.wait()
    assert "thrown by a timer" in caplog.text


async def test_a_deadline_whose_answer_came_first_is_not_retained() -> None:
    """A client may send a thousand requests per second that may each wait for ten minutes but get an immediate
    response.
    """
    deadlines, answer, late = Deadlines(), asyncio.get_running_loop().create_future(), asyncio.Event()
    held = weakref.ref(waits := Waits())
    deadlines.unless_done(answer, 600.0, waits.end)
    deadlines.unless_done(asyncio.get_running_loop().create_future(), 0.01, late.set)
    answer.set_result(None)
    del waits
    async with asyncio.timeout(10):
        await late.wait()
    assert held() is None


async def test_s87_simultaneous_deadlines_let_other_work_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each deadline causes other work in the next turn of the loop, such as reading for a fetch.

    The loop therefore limits the number of deadlines that fire in one turn, and not only the time that they take.
    """
    loop = asyncio.get_running_loop()
    now, fired_in = loop.time(), Counter[int]()
    monkeypatch.setattr(loop, "time", lambda: now)  # time is frozen, so that all deadlines are in one bucket
    deadlines, turn, many = Deadlines(lambda: 0.0), 0, 3 * FIRED_PER_TURN + 1
    answers = [loop.create_future() for _ in range(many)]
    for answer in answers:
        deadlines.unless_done(answer, 0.01, lambda: fired_in.update([turn]))
    answers[-2].set_result(None)  # this deadline is cancelled before the other deadlines fire
    monkeypatch.undo()
    async with asyncio.timeout(10):
        while fired_in.total() < many - 1:
            turn += 1
            await asyncio.sleep(0)
    assert list(fired_in.values()) == [FIRED_PER_TURN] * 3
    assert max(fired_in) - min(fired_in) == 2


async def test_s87_slow_deadlines_fire_one_per_loop_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    now, fired_in = loop.time(), Counter[int]()
    monkeypatch.setattr(loop, "time", lambda: now)
    seconds = count()
    deadlines, turn = Deadlines(lambda: float(next(seconds))), 0
    for _ in range(5):
        deadlines.after(0.01, lambda: fired_in.update([turn]))
    monkeypatch.undo()
    async with asyncio.timeout(10):
        while fired_in.total() < 5:
            turn += 1
            await asyncio.sleep(0)
    assert list(fired_in.values()) == [1] * 5


class Waits:
    """A waiting request that a timer may refer to."""

    def end(self) -> None:
        raise AssertionError("nobody waits any more")
