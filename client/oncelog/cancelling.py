"""Distinguishes whether the waiting task or the awaited future was cancelled."""

from __future__ import annotations

import asyncio


def is_being_cancelled() -> bool:
    """Return whether the current task is being cancelled. Code that catches CancelledError from an awaited future and
    handles it must call this function first: if the code swallows the cancellation of its own task, the task that
    requested the cancellation waits for ever.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
