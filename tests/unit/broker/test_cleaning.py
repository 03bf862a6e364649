"""Running steps between everything else that an event loop does."""

import asyncio
import threading

import pytest

from oncelog_broker.cleaning import SLICE_SECONDS, Slices, Throttle
from oncelog_broker.runtime.clock import ManualClock, SystemClock


def no_pause() -> float:
    return 0.0


async def test_the_result_and_what_jobs_return():
    def steps():
        yield None
        first = yield lambda: threading.current_thread()
        yield None
        return first

    assert await Slices(SystemClock(), no_pause).run(steps()) is not threading.current_thread()


async def test_jobs_that_fail_fail_in_the_steps():
    def steps():
        try:
            yield lambda: int("no number")
        except ValueError:
            return "caught"
        return "missed"

    assert await Slices(SystemClock(), no_pause).run(steps()) == "caught"

    def careless():
        yield lambda: int("no number")

    with pytest.raises(ValueError):
        await Slices(SystemClock(), no_pause).run(careless())


async def test_the_loop_gets_its_turn_after_each_slice():
    clock = ManualClock()
    turns: list[str] = []

    def steps():
        for _ in range(6):
            clock.advance_ms(int(SLICE_SECONDS * 1000 / 2) + 1)
            turns.append("step")
            yield None

    async def others():
        while True:
            turns.append("other")
            await asyncio.sleep(0)

    task = asyncio.get_running_loop().create_task(others())
    slices = Slices(clock, no_pause)
    await slices.run(steps())
    task.cancel()
    work = [turn for turn in turns if turn == "step"]
    longest = max(len(run) for run in "".join("s" if turn == "step" else " " for turn in turns).split())
    assert (len(work), longest) == (6, 2), "two steps fill a slice"
    assert SLICE_SECONDS <= slices.longest_seconds < 2 * SLICE_SECONDS


async def test_being_cancelled_waits_for_the_job_and_then_closes_the_steps():
    events: list[str] = []
    started, may_end = threading.Event(), threading.Event()

    def job() -> None:
        started.set()
        may_end.wait(10)
        events.append("job ended")

    def steps():
        try:
            yield job
        finally:
            events.append("steps closed")

    task = asyncio.get_running_loop().create_task(Slices(SystemClock(), no_pause).run(steps()))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    assert events == []
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events == ["job ended", "steps closed"]


def test_throttle_pauses_as_long_as_the_bytes_are_ahead_of_the_time():
    clock = ManualClock()
    throttle = Throttle(1000.0, clock)
    assert throttle.pause_after(500) == 0.5
    clock.advance_ms(400)
    assert throttle.pause_after(500) == pytest.approx(0.1)
    clock.advance_ms(400)
    assert throttle.pause_after(500) == 0
