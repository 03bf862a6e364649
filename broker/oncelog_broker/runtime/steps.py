"""Long work as a generator, so that its caller decides when it runs, and in which thread it waits.

A `Steps` yields None where it may be paused, and a job where it must wait for the disk or for a codec. A job is a
function that may run in another thread, since it uses nothing that others use; its result is sent back into the
generator. `run_steps` runs the whole work at once, `slices.Slices` in slices between the other work of the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

Job = Callable[[], object]
Result = TypeVar("Result")
Steps = Generator[Job | None, Any, Result]


def results_dropped() -> None:
    """Yielded instead of a job: the results of the jobs so far are dropped, so that other work may run its jobs. Work
    on many items yields this after each item."""


class LightJob:
    """A job without a result to hold (it writes a file): it need not wait until other work has dropped its results."""

    __slots__ = ("_job",)

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self) -> object:
        return self._job()


class HeavyJob:
    """A job with so large a result that only one such result may be in memory at a time. The work that yields it must
    have dropped the results of earlier jobs."""

    __slots__ = ("_job",)

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self) -> object:
        return self._job()


def run_steps(steps: Steps[Result]) -> Result:
    """Run to the end, jobs included. Raises the errors of the steps."""
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
