"""Who is told CancelledError: the one that waits, or what it waits for."""

from __future__ import annotations

import asyncio


def is_being_cancelled() -> bool:
    """Whether the task that asks is to end. To be asked by whoever is told CancelledError by what it waits for, and
    makes something else of it: a cancellation that was swallowed is not repeated, and whoever waits for the end of the
    task waits for ever."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
