"""Receives the questions of processes at their fail points: each process pauses entirely until it gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import NamedTuple

GO = "go"


class Hit(NamedTuple):
    """A process has reached a fail point, and waits for the answer."""

    when: str
    point: str


class Questions:
    """Listens on a unix socket; when a process reaches a fail point, `decide` is called, and its return value is the
    answer to the process.
    """

    def __init__(self, path: Path, decide: Callable[[Hit], Awaitable[str]]) -> None:
        self._path = path
        self._decide = decide
        self._asking: set[asyncio.Task[None]] = set()

    def specification(self, points: Collection[str]) -> str:
        """The value of ONCELOG_FAIL_POINTS for a process that asks before and after each of `points`."""
        return ";".join(f"{point} = {when} ask {self._path}" for point in points for when in ("before", "after"))

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._accept, self._path)

    async def close(self) -> None:
        """Close the socket; call this method after all asking processes have ended."""
        self._server.close()
        await asyncio.gather(*self._asking)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._asking.add(task)

        def ended(_: object) -> None:
            self._asking.discard(task)
            writer.close()  # close the connection even if the run ended before this task began

        task.add_done_callback(ended)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                when, point, _ = line.decode().split()
                answer = await self._decide(Hit(when, point))
                writer.write(f"{answer}\n".encode())
                await writer.drain()
        except ConnectionError:
            pass  # the process that asked was killed
