"""Long work as a generator of steps, so that its runner decides when it runs and where it waits.

A `Steps` yields None where it may be paused, and a job where it must wait for the disk or a codec: a function that
touches no shared state, so that it may run in another thread; its result is sent back in. `run_steps` runs all at once,
`slices.Slices` between the other work of the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

Job = Callable[[], object]
Result = TypeVar("Result")
Steps = Generator[Job | None, Any, Result]


def holds_nothing() -> None:
    """Yielded in place of a job: the results of earlier jobs are released. Work on many items yields it after each, so
    that other work may run jobs."""


class Errand:
    """A job without a result to hold (a file is written): it need not wait for others to release theirs."""

    __slots__ = ("_job",)

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self) -> object:
        return self._job()


class Heavy:
    """A job with a result so large that only one such may be held at a time. Results of lighter jobs are released
    before."""

    __slots__ = ("_job",)

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self) -> object:
        return self._job()


def run_steps(steps: Steps[Result]) -> Result:
    """Run to the end, jobs included. Raises what the steps raise."""
    resume: Callable[[], Job | None] = partial(steps.send, None)
    while True:
        try:
            job = resume()
        except StopIteration as finished:
            result: Result = finished.value
            return result
        resume = partial(steps.send, None)
        if job is not None:
            try:
                resume = partial(steps.send, job())
            except Exception as error:
                resume = partial(steps.throw, error)
