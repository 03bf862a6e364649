"""Requests about very many partitions, answered in slices, so that other connections get their turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Final, TypeVar

from oncelog_broker.runtime.clock import Clock

SLICE_SECONDS: Final = 0.004

R = TypeVar("R")
Slices = Generator[None, None, R]
"""A handler that yields after each partition, and returns its answer."""


def in_slices(work: Slices[R], clock: Clock) -> R | Coroutine[Any, Any, R]:
    """Run `work` at one go if it ends soon, as nearly all does; else a coroutine that runs the rest.

    What the broker is may change between two partitions, as it may between two requests.
    """
    end = clock.monotonic() + SLICE_SECONDS
    try:
        next(work)
        while clock.monotonic() < end:
            next(work)
    except StopIteration as finished:
        answer: R = finished.value
        return answer
    return _rest(work, clock)


async def _rest(work: Slices[R], clock: Clock) -> R:
    while True:
        await asyncio.sleep(0)
        end = clock.monotonic() + SLICE_SECONDS
        try:
            next(work)
            while clock.monotonic() < end:
                next(work)
        except StopIteration as finished:
            answer: R = finished.value
            return answer
