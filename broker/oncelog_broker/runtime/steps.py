"""Long work cut into steps, so that whoever runs it decides when, and where its waiting is done.

A `Steps` is a generator. It yields None where it may be paused, and a job where it must wait for the disk or for a
codec: a function that touches nothing of others, hence may run in another thread, and whose result is sent back in.
`run_steps` runs all at one go, `slices.Slices` between everything else that the event loop does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

Job = Callable[[], object]
Result = TypeVar("Result")
Steps = Generator[Job | None, Any, Result]


def holds_nothing() -> None:
    """Yielded in the place of a job: what the jobs so far have brought is dropped. Work about many things says so after
    each, and lets others have their jobs."""


class Errand:
    """A job that brings nothing which would have to be held (a file is written): it need not wait until others have
    dropped what theirs have brought."""

    __slots__ = ("_job",)

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self) -> object:
        return self._job()


class Heavy:
    """A job that may bring so much that there is to be no other such at the same time, until what it has brought is
    dropped. What lighter jobs have brought is not held any more."""

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
