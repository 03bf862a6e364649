"""Long work runs between other work: all requests together get one slice in each turn of the event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from oncelog_broker.runtime.answers import settled
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import HEAVY_JOBS_AT_ONCE, JOBS_AT_ONCE, SLICE_SECONDS, Delays, Slices
from oncelog_broker.runtime.steps import HeavyJob, LightJob, Steps, results_dropped, run_steps
from oncelog_broker.runtime.tasks import Deadlines, Tasks

STEPS_PER_SLICE = 3


class Work:
    """Steps, each of which takes a part of a slice; the object records which steps ran in which turn of the loop."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.tasks = Tasks()
        self.slices = Slices(self.clock, self.tasks)
        self.log: list[str] = []

    def steps(self, name: str, count: int) -> Steps[str]:
        try:
            for _ in range(count):
                self.clock.advance_ms(int(SLICE_SECONDS * 1000 / STEPS_PER_SLICE))
                self.log.append(name)
                yield None
        finally:
            self.log.append(f"{name} closed")
        return name

    async def turns(self, answers: list[Any]) -> list[str]:
        """Return the steps of each turn until all answers are present."""
        turns = []
        while not all(answer.done() for answer in answers):
            done = len(self.log)
            await asyncio.sleep(0)
            turns.append("".join(self.log[done:]).replace(" closed", "."))
        return turns


async def test_work_that_ends_within_a_slice_is_done_at_once() -> None:
    work = Work()
    assert work.slices.run(work.steps("a", STEPS_PER_SLICE - 1)) == "a"


async def test_other_work_gets_its_turn_after_each_slice() -> None:
    work = Work()
    answer = work.slices.run(work.steps("a", 4 * STEPS_PER_SLICE))
    assert isinstance(answer, asyncio.Future)
    assert len(work.log) == STEPS_PER_SLICE
    turns = await work.turns([answer])
    assert max(map(len, turns)) <= STEPS_PER_SLICE + len("a.")
    assert answer.result() == "a"


async def test_all_long_tasks_together_have_one_slice_per_loop_turn() -> None:
    work = Work()
    answers = [work.slices.run(work.steps(name, 4 * STEPS_PER_SLICE)) for name in "abcdefgh"]
    turns = await work.turns(answers)
    assert max(len(turn.replace(".", "")) for turn in turns) <= STEPS_PER_SLICE + 1
    order = [turn[0] for turn in turns if turn]
    assert order[:8] == list("abcdefgh"), "one after another"


async def test_the_result_or_exception_of_a_job_reaches_the_steps() -> None:
    def steps() -> Steps[tuple[bool, str]]:
        thread = yield threading.current_thread
        try:
            yield lambda: int("no number")
        except ValueError:
            return thread is not threading.current_thread(), "caught"
        return False, "missed"

    def careless() -> Steps[None]:
        yield lambda: int("no number")

    work = Work()
    assert await settled(work.slices.run(steps())) == (True, "caught")
    with pytest.raises(ValueError):
        await settled(work.slices.run(careless()))


async def test_work_for_a_departed_client_stops_unless_it_must_finish() -> None:
    work = Work()
    given_up, finished = (
        work.slices.run(work.steps(name, 3 * STEPS_PER_SLICE), must_finish=name == "b") for name in "ab"
    )
    for answer in (given_up, finished):
        assert isinstance(answer, asyncio.Future)
        answer.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert work.log.count("b") == 3 * STEPS_PER_SLICE
    assert work.log.count("a") < 3 * STEPS_PER_SLICE


@pytest.mark.parametrize("cancelled", [1, 2])
async def test_a_cancellation_waits_for_the_job_and_then_closes_the_steps(cancelled: int) -> None:
    """The work may be cancelled twice: first because the client disconnects, and then because the broker stops."""
    events: list[str] = []
    started, may_end = threading.Event(), threading.Event()

    def job() -> None:
        started.set()
        may_end.wait(10)
        events.append("job ended")

    def steps() -> Steps[None]:
        try:
            yield job
        finally:
            events.append("steps closed")

    answer = Work().slices.run(steps())
    assert isinstance(answer, asyncio.Future)
    await asyncio.to_thread(started.wait, 10)
    for _ in range(cancelled):
        answer.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
    assert events == []
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await answer
    assert events == ["job ended", "steps closed"]


async def test_the_pace_is_consulted_after_slices_and_jobs() -> None:
    class Noting(Delays):
        def __init__(self) -> None:
            self.asked: list[float | str] = []

        def after_slice(self, seconds: float) -> float:
            self.asked.append(seconds)
            return 0.0

        def after_job(self) -> float:
            self.asked.append("job")
            return 0.0

    def steps() -> Steps[None]:
        yield from work.steps("a", STEPS_PER_SLICE)  # type: ignore[misc]
        yield lambda: None

    work, pace = Work(), Noting()
    await settled(work.slices.run(steps(), delays=pace))
    assert pace.asked == [pytest.approx(SLICE_SECONDS), pytest.approx(0.0), "job"]


async def test_a_coroutine_that_never_waits_lets_others_in_all_the_same() -> None:
    work = Work()

    async def many() -> None:
        pauses = work.slices.pauses()
        for _ in range(5 * STEPS_PER_SLICE):
            await pauses.here()
            work.clock.advance_ms(int(SLICE_SECONDS * 1000 / STEPS_PER_SLICE))
            work.log.append("a")

    turns = await work.turns([asyncio.ensure_future(many())])
    assert max(map(len, turns)) == STEPS_PER_SLICE
    assert "".join(turns) == "a" * 5 * STEPS_PER_SLICE


async def test_a_timer_that_fails_does_not_take_the_others_of_its_tick_along() -> None:
    fired = asyncio.Event()

    def fail() -> None:
        raise ValueError("for this test")

    deadlines, callbacks = Deadlines(), list[Callable[[], None]]([fail, fired.set])
    for callback in callbacks:
        deadlines.after(0.0, callback)
    async with asyncio.timeout(10):
        await fired.wait()


async def test_work_about_many_things_lets_others_have_their_jobs_after_each() -> None:
    work, other_is_done = Work(), threading.Event()

    def many() -> Steps[bool]:
        yield int
        yield results_dropped
        return (yield lambda: other_is_done.wait(10))

    def one() -> Steps[None]:
        yield other_is_done.set

    answers = [work.slices.run(many()) for _ in range(JOBS_AT_ONCE)]
    await settled(work.slices.run(one()))
    assert [await settled(answer) for answer in answers] == [True] * JOBS_AT_ONCE


async def test_releasing_an_empty_hold_costs_no_turn_and_no_job() -> None:
    def steps() -> Steps[str]:
        for _ in range(100):
            yield results_dropped
        return "done"

    assert Work().slices.run(steps()) == run_steps(steps()) == "done"


async def test_an_errand_does_not_wait_for_holders_of_finished_job_results() -> None:
    """DeleteRecords must write log starts even while as many batches as possible are decompressed and examined."""
    work = Work()
    may_end = threading.Event()
    errand_done = asyncio.Event()

    def holds() -> Steps[bool]:
        yield lambda: None
        while not errand_done.is_set():
            work.clock.advance_ms(int(SLICE_SECONDS * 1000))
            yield None
        return (yield may_end.is_set)

    def errand() -> Steps[str]:
        yield LightJob(may_end.set)
        return "written"

    holding = [work.slices.run(holds()) for _ in range(JOBS_AT_ONCE)]
    async with asyncio.timeout(10):
        assert await settled(work.slices.run(errand())) == "written"
        errand_done.set()
        assert [await settled(answer) for answer in holding] == [True] * JOBS_AT_ONCE
    assert run_steps(errand()) == "written"


async def test_heavy_jobs_are_held_one_at_a_time_and_keep_nobody_from_lighter_ones() -> None:
    work, lighter_are_done = Work(), asyncio.Event()
    held, most = 0, 0

    def heavy() -> Steps[str]:
        nonlocal held, most
        yield int
        yield HeavyJob(int)
        held += 1
        most = max(most, held)
        try:
            while not lighter_are_done.is_set():
                work.clock.advance_ms(int(SLICE_SECONDS * 1000))
                yield None
            yield int
        finally:
            held -= 1
        return "heavy"

    def light() -> Steps[str]:
        yield int
        return "light"

    answers = [work.slices.run(heavy()) for _ in range(3 * JOBS_AT_ONCE)]
    async with asyncio.timeout(10):
        for _ in range(3 * JOBS_AT_ONCE):
            assert await settled(work.slices.run(light())) == "light"
        lighter_are_done.set()
        assert await settled(answers[0]) == "heavy"
        answers[1].cancel()
        assert [await settled(answer) for answer in answers[2:]] == ["heavy"] * len(answers[2:])
    assert most == HEAVY_JOBS_AT_ONCE
    assert run_steps(light()) == "light"


async def test_a_first_slice_may_be_longer_than_the_others() -> None:
    """Short work ends within its first, longer slice; after that slice, long work pauses as often as any other work."""
    work = Work()

    async def many() -> None:
        pauses = work.slices.pauses(0.002, first_seconds=0.005)
        for _ in range(9):
            await pauses.here()
            work.clock.advance_ms(1)
            work.log.append("a")

    turns = await work.turns([asyncio.ensure_future(many())])
    assert [len(turn) for turn in turns if turn] == [5, 2, 2]


async def test_the_result_or_exception_of_a_job_is_released_at_its_end() -> None:
    """A job's result of up to 64 MB must be freed immediately, because the next garbage collection may be a minute
    away.
    """

    class Brought:
        pass

    class Failed(Exception):
        pass

    kept: list[weakref.ref[Any]] = []

    def bring() -> Brought:
        brought = Brought()
        kept.append(weakref.ref(brought))
        return brought

    def fail() -> None:
        brought = bring()
        raise Failed(id(brought))

    def steps() -> Steps[str]:
        try:
            yield fail
        except Failed:
            pass
        brought = yield bring
        return type(brought).__name__

    gc.disable()
    try:
        work = Work()
        assert await settled(work.slices.run(steps())) == "Brought"
        async with asyncio.timeout(30):
            while any(each() is not None for each in kept):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)  # a thread may still refer to the result
        assert len(kept) == 2
    finally:
        gc.enable()
