"""Distinguishes a cancellation of the waiting task from one of the awaited future."""

from __future__ import annotations

import asyncio


def is_being_cancelled() -> bool:
    """Return whether the current task is being cancelled. Code that catches CancelledError from an awaited future and
    handles it must call this function first: a swallowed cancellation is not repeated, so the canceller would wait for
    ever.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
