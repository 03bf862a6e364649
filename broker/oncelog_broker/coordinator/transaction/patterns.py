"""Patterns of transactional ids (KIP-1152): RE2's, as in Kafka.

RE2 takes time in proportion to pattern and text, whatever they say; but a pattern of a few dozen characters may stand
for thousands of steps, each to be taken for every character of an id of up to 32 KB: that is a second. So ids are
matched in a thread, which RE2 lets run beside the loop; there is one for all who ask, or they would take all threads
from others. Patterns are read there, too: with the first one RE2 is loaded, which takes some milliseconds, and memory
that a broker whom nobody asks for this does not need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from oncelog_broker.runtime.clock import Clock

MAX_PATTERN_CHARS: Final = 256
MAX_PROGRAM_SIZE: Final = 2_000
"""Steps of a compiled pattern: `x{1000}` has a thousand of them."""
MAX_PATTERN_BYTES: Final = 256 * 1024
"""What RE2 may take for a pattern, and for what it finds out on the way."""
TURN_SECONDS: Final = 0.05
"""So long ids are matched for one request, then it is the turn of the next."""
_THREAD: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="patterns")


class InvalidPattern(Exception):
    """This is no pattern, or more than we are willing to look for."""


class Compiled(Protocol):
    """What RE2 makes of a pattern."""

    @property
    def programsize(self) -> int: ...

    def fullmatch(self, text: str, /) -> object | None: ...


class IdPattern:
    """One pattern."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled

    @classmethod
    async def read(cls, text: str) -> IdPattern:
        """Raises InvalidPattern."""
        if len(text) > MAX_PATTERN_CHARS:
            raise InvalidPattern(f"a pattern of {len(text)} characters, of {MAX_PATTERN_CHARS} at most")
        return cls(await asyncio.get_running_loop().run_in_executor(_THREAD, _compiled, text))

    async def matching(self, ids: Sequence[str], clock: Clock) -> set[str]:
        """Those of `ids` that match as a whole."""
        found: list[str] = []
        done = 0
        while done < len(ids):
            done = await asyncio.get_running_loop().run_in_executor(_THREAD, self._match_some, ids, done, found, clock)
        return set(found)

    def _match_some(self, ids: Sequence[str], start: int, found: list[str], clock: Clock) -> int:
        """Match for TURN_SECONDS, from the id number `start` on; the number of the next."""
        end = clock.monotonic() + TURN_SECONDS
        for number in range(start, len(ids)):
            if self._compiled.fullmatch(ids[number]) is not None:
                found.append(ids[number])
            if clock.monotonic() > end:
                return number + 1
        return len(ids)


def _compiled(text: str) -> Compiled:
    """Raises InvalidPattern."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PATTERN_BYTES
    try:
        compiled: Compiled = re2.compile(text, options)
    except re2.error as error:
        raise InvalidPattern(str(error)) from error
    if compiled.programsize > MAX_PROGRAM_SIZE:
        raise InvalidPattern(f"a pattern of {compiled.programsize} steps, of {MAX_PROGRAM_SIZE} at most")
    return compiled
