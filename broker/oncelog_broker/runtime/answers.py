"""The type `Answer[R]` is a value of type R, or a future of such a value; every function that may have to wait returns
an answer.

`then` and `all_of` combine answers; if the values are present, they create neither a future nor a task. A coroutine is
not an answer: `Tasks.answer` runs a coroutine as a task and returns its future.

Cancelling an answer means that no caller waits for that answer any more. `then` and `all_of` pass a cancellation to the
answers that they wait for; work that must finish once it has begun is shielded (`Tasks.answer`, `Slices.run`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

R = TypeVar("R")
S = TypeVar("S")

Answer: TypeAlias = R | asyncio.Future[R]


def then(answer: Answer[R], function: Callable[[R], Answer[S]]) -> Answer[S]:
    """Apply `function` to the value of `answer`; `function` may itself return an answer.

    An exception of the answer or of the function is raised here, or by the returned future.
    """
    if not isinstance(answer, asyncio.Future):
        return function(answer)
    later: asyncio.Future[S] = answer.get_loop().create_future()

    def came(source: asyncio.Future[R]) -> None:
        if not _has_value(source, later):
            return
        try:
            result = function(source.result())
        except Exception as error:
            later.set_exception(error)
            return
        if isinstance(result, asyncio.Future):
            result.add_done_callback(hand_over)
            _cancel_with(later, result)
        else:
            later.set_result(result)

    def hand_over(source: asyncio.Future[S]) -> None:
        if _has_value(source, later):
            later.set_result(source.result())

    answer.add_done_callback(came)
    _cancel_with(later, answer)
    return later


def all_of(answers: Sequence[Answer[R]]) -> Answer[list[R]]:
    """Return an answer with all values, in order. If an answer fails, the returned answer fails with the first
    exception, and the other values are ignored.
    """
    missing = sum(isinstance(answer, asyncio.Future) for answer in answers)
    if not missing:
        return list(answers)  # type: ignore[arg-type]
    later: asyncio.Future[list[R]] = asyncio.get_running_loop().create_future()

    def came(source: asyncio.Future[R]) -> None:
        nonlocal missing
        missing -= 1
        if _has_value(source, later) and not missing:
            later.set_result([each.result() if isinstance(each, asyncio.Future) else each for each in answers])

    for answer in answers:
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(came)
            _cancel_with(later, answer)
    return later


async def settled(answer: Answer[R]) -> R:
    """Wait for an answer in a coroutine: `await settled(answer)`."""
    return await answer if isinstance(answer, asyncio.Future) else answer


def _has_value(source: asyncio.Future[Any], later: asyncio.Future[Any]) -> bool:
    """Whether the future `source` has a value. If `source` has failed or was cancelled, the future `later` fails or is
    cancelled, too.
    """
    error = None if source.cancelled() else source.exception()
    if later.done():
        return False
    if source.cancelled():
        later.cancel()
    elif error is not None:
        later.set_exception(error)
    else:
        return True
    return False


def _cancel_with(later: asyncio.Future[Any], source: asyncio.Future[Any]) -> None:
    def ended(later: asyncio.Future[Any]) -> None:
        if later.cancelled():
            source.cancel()

    later.add_done_callback(ended)
