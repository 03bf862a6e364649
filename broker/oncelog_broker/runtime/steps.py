"""Long work as a generator, so that the caller decides when the work runs, and in which thread it waits.

A `Steps` generator yields None where it may be paused, and a job where it must wait for the disk or for compression. A
job is a function that may run in another thread, because it uses no shared data; its result is sent back into the
generator. `run_steps` runs the entire work immediately; `slices.Slices` runs it in slices between the other work of the
event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

Job = Callable[[], object]
Result = TypeVar("Result")
Steps = Generator[Job | None, Any, Result]


def results_dropped() -> None:
    """A marker that steps yield instead of a job. The marker means that the results of the earlier jobs were dropped,
    so that other work may now run its jobs. Work on many items yields `results_dropped` after each item.
    """


class LightJob:
    """A job whose result needs no memory, for example because it writes a file. Such a job need not wait until other
    work has dropped the results of its jobs.
    """

    __slots__ = ("_job",)

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self) -> object:
        return self._job()


class HeavyJob:
    """A job whose result is so large that only one such result may be in memory simultaneously. The work that yields
    such a job must first drop the results of its earlier jobs.
    """

    __slots__ = ("_job",)

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self) -> object:
        return self._job()


def run_steps(steps: Steps[Result]) -> Result:
    """Run the steps to their end, including their jobs. Raises the errors of the steps."""
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
