"""Matches transactional ids (KIP-1152), topic names (KIP-848) and attributes of clients (KIP-714) against patterns that
clients send, with RE2, as in Kafka.

RE2 takes time proportional to the pattern and the text. However, RE2 may compile a pattern of a few dozen characters to
thousands of steps. RE2 may try all these steps for every character of a name. Matching an id of 32 KB with such a
pattern takes about a second. Because one match may take that long, names are matched in a thread, where RE2 releases
the interpreter lock. All requests share one thread, so that matching does not use up the threads of other work.
Patterns are also compiled in this thread, not in the event loop. Compiling the first pattern loads RE2, which takes
some milliseconds, and memory that most brokers never need.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol

from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.steps import Steps

logger = logging.getLogger(__name__)

MAX_PATTERN_CHARS: Final = 256
MAX_TOPIC_PATTERN_CHARS: Final = 4096
"""Maximum characters of the pattern of a subscription; the limit is higher than for other patterns, because clients
join several patterns into one.
"""
MAX_PROGRAM_SIZE: Final = 2_000
"""Maximum steps of a compiled pattern; the pattern `x{1000}` has a thousand steps."""
MAX_PATTERN_BYTES: Final = 256 * 1024
"""Maximum memory of RE2 for a pattern and its caches."""
MAX_TOPIC_PROGRAM_SIZE: Final = 10_000
STEPS_PER_JOB: Final = 400_000
"""Maximum size of one job that matches topic names: steps of the pattern times number of names. After each job other
work may use the thread. A job of this size takes some tenths of a second, because a topic name has at most 249
characters.
"""
TURN_SECONDS: Final = 0.05
"""Seconds during which the ids of one request are matched before the thread serves the next request."""
_THREAD: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="patterns")


class InvalidPattern(Exception):
    """The text is not a pattern of RE2, or the pattern is too large."""


class Compiled(Protocol):
    """A compiled pattern of RE2."""

    @property
    def programsize(self) -> int: ...

    def fullmatch(self, text: str, /) -> object | None: ...


class IdPattern:
    """A compiled pattern that matches transactional ids in the thread in which all patterns are matched."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled

    @classmethod
    async def read(cls, text: str) -> IdPattern:
        """Compile a pattern, in the thread for patterns. Raises InvalidPattern."""
        return cls(await asyncio.get_running_loop().run_in_executor(_THREAD, id_pattern, text))

    async def matching(self, ids: Sequence[str], clock: Clock) -> set[str]:
        """Return those of `ids` that the pattern matches completely."""
        found: list[str] = []
        done = 0
        while done < len(ids):
            done = await asyncio.get_running_loop().run_in_executor(_THREAD, self._match_some, ids, done, found, clock)
        return set(found)

    def _match_some(self, ids: Sequence[str], start: int, found: list[str], clock: Clock) -> int:
        """Match the ids from the index `start` on, and stop after TURN_SECONDS. Returns the index of the next id to
        match.
        """
        end = clock.monotonic() + TURN_SECONDS
        for number in range(start, len(ids)):
            if self._compiled.fullmatch(ids[number]) is not None:
                found.append(ids[number])
            if clock.monotonic() > end:
                return number + 1
        return len(ids)


def id_pattern(text: str) -> Compiled:
    """Compile a pattern for ids and other short texts; call this in a thread. Raises InvalidPattern."""
    if len(text) > MAX_PATTERN_CHARS:
        raise InvalidPattern(f"the pattern has {len(text)} characters, at most {MAX_PATTERN_CHARS} are allowed")
    return _compiled(text)


async def check_id_pattern(text: str) -> str | None:
    """Return the error message for a pattern of ids; None if the pattern is valid."""
    try:
        await IdPattern.read(text)
    except InvalidPattern as error:
        return str(error)
    return None


async def check_topic_pattern(text: str) -> str | None:
    """Return the error message for a pattern of a subscription; None if the pattern is valid."""
    try:
        await asyncio.get_running_loop().run_in_executor(_THREAD, _topic_pattern, text)
    except InvalidPattern as error:
        return str(error)
    return None


def matching_topics(text: str, names: Sequence[str]) -> Steps[list[str]]:
    """Return the names that the pattern `text` of a subscription matches completely. The yielded jobs use RE2 in a
    thread. Another broker may have accepted a pattern that RE2 rejects here; in that case a warning is logged and the
    result is empty.
    """
    try:
        compiled: Compiled = yield partial(_topic_pattern, text)
    except InvalidPattern as error:
        logger.warning("a pattern matches no topic", extra={"pattern": text, "reason": error})
        return []
    found: list[str] = []
    at_once = max(1, STEPS_PER_JOB // max(1, compiled.programsize))
    for start in range(0, len(names), at_once):
        found += yield partial(_matching, compiled, names[start : start + at_once])
    return found


def _topic_pattern(text: str) -> Compiled:
    """Compile the pattern of a subscription. Raises InvalidPattern."""
    if len(text) > MAX_TOPIC_PATTERN_CHARS:
        raise InvalidPattern(f"the pattern has {len(text)} characters, at most {MAX_TOPIC_PATTERN_CHARS} are allowed")
    return _compiled(text, MAX_TOPIC_PROGRAM_SIZE)


def _matching(compiled: Compiled, names: Sequence[str]) -> list[str]:
    return [name for name in names if compiled.fullmatch(name) is not None]


def _compiled(text: str, max_program_size: int = MAX_PROGRAM_SIZE) -> Compiled:
    """Compile a pattern with RE2. Raises InvalidPattern if the pattern is not valid or too large."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PATTERN_BYTES
    try:
        compiled: Compiled = re2.compile(text, options)
    except re2.error as error:
        raise InvalidPattern(str(error)) from error
    if compiled.programsize > max_program_size:
        raise InvalidPattern(
            f"the pattern compiles to {compiled.programsize} steps, at most {max_program_size} are allowed"
        )
    return compiled
