"""Answers that may be there at once or come later, brought together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

R = TypeVar("R")
S = TypeVar("S")


def when_all(answers: Sequence[R | asyncio.Future[R]], then: Callable[[list[R]], S]) -> S | Awaitable[S]:
    """`then(answers)`, at once if all are there: waiting costs a task."""
    there: list[R] = []
    for answer in answers:
        if isinstance(answer, asyncio.Future):
            return _wait(answers, then)
        there.append(answer)
    return then(there)


async def _wait(answers: Sequence[R | asyncio.Future[R]], then: Callable[[list[R]], S]) -> S:
    return then([await answer if isinstance(answer, asyncio.Future) else answer for answer in answers])
