"""Timers by the thousand, which share their wake-ups."""

from __future__ import annotations

import asyncio
import weakref

import pytest

from oncelog_broker.runtime.tasks import Deadlines


async def test_one_that_raises_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of a bucket are of different clients."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)  # all in one bucket
    deadlines, fired = Deadlines(), asyncio.Event()

    def throw() -> None:
        raise ValueError("thrown by a timer")

    deadlines.after(0.01, throw)
    deadlines.after(0.01, fired.set)
    monkeypatch.undo()
    async with asyncio.timeout(10):
        await fired.wait()
    assert "thrown by a timer" in caplog.text


async def test_nothing_stays_of_a_deadline_whose_answer_came_before() -> None:
    """A client may ask to wait for ten minutes, and be answered, a thousand times in a second."""
    deadlines, answer, late = Deadlines(), asyncio.get_running_loop().create_future(), asyncio.Event()
    held = weakref.ref(waits := Waits())
    deadlines.unless_done(answer, 600.0, waits.end)
    deadlines.unless_done(asyncio.get_running_loop().create_future(), 0.01, late.set)
    answer.set_result(None)
    del waits
    async with asyncio.timeout(10):
        await late.wait()
    assert held() is None


class Waits:
    """One who waits."""

    def end(self) -> None:
        raise AssertionError("nobody waits any more")
