"""Reads a file, pipe or terminal in chunks, without blocking the event loop and without a thread.

A thread in read() cannot be cancelled, so Ctrl-C would hang until the next line. The descriptor stays blocking, because
every process that shares it, such as the shell on the terminal, would see a change to non-blocking. Therefore the
reader waits until data is available and then reads once, which does not block. The event loop cannot watch a regular
file, but a regular file is always readable.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Final

CHUNK_BYTES: Final = 65_536


async def chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield data from `descriptor` until its end. Raises OSError."""
    is_watchable = True
    while True:
        if is_watchable:
            is_watchable = await _readable(descriptor)
        data = os.read(descriptor, CHUNK_BYTES)
        if not data:
            return
        yield data


async def _readable(descriptor: int) -> bool:
    """Wait until `descriptor` is readable. Return False if the event loop cannot watch the descriptor, because such a
    file is always readable.
    """
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:  # epoll rejects a regular file or /dev/null
        return False
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return True
