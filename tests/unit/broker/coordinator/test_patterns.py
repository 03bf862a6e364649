"""Patterns of transactional ids: what a pattern matches, which patterns are refused, and that matching delays only the
requests that use a pattern.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from oncelog_broker.coordinator import patterns
from oncelog_broker.coordinator.patterns import IdPattern, InvalidPattern
from oncelog_broker.runtime.clock import SystemClock

CLOCK = SystemClock()
SLOW = "(((((a?b?){1,6}){1,6}){1,6})*)c"
"""A pattern whose matching takes many steps, and whose intermediate states RE2 cannot cache."""


def test_the_regular_expression_library_is_loaded_only_if_needed() -> None:
    """Loading the RE2 library takes milliseconds and memory, and the first request would load the library on the event
    loop. Importing the handler must therefore not load it.
    """
    look = "import oncelog_broker.server.transactions.list_transactions, sys; sys.exit('re2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0


async def test_the_matching_thread_loads_the_regular_expression_library(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = list[str]()
    read = patterns._compiled
    monkeypatch.setattr(
        patterns, "_compiled", lambda text: readers.append(threading.current_thread().name) or read(text)
    )
    await IdPattern.read("x")
    assert [name.startswith("patterns") for name in readers] == [True]


async def test_the_whole_id_matches() -> None:
    ids = ["orders-1", "orders-22", "my-orders-1", "orders-"]
    assert await (await IdPattern.read(r"orders-\d+")).matching(ids, CLOCK) == {"orders-1", "orders-22"}
    assert await (await IdPattern.read("")).matching(["", "a"], CLOCK) == {""}
    assert await (await IdPattern.read("é|日.*")).matching(["é", "日本", "e"], CLOCK) == {"é", "日本"}


@pytest.mark.parametrize(
    "text", ["(", "a{2,1}", r"(a)\1", "(?=a)", "x" * 257, r"(\pL{30}){30}", "((a{50}){50}){50}", "((a?){44}){50}"]
)
async def test_invalid_and_oversized_patterns_are_refused(text: str) -> None:
    with pytest.raises(InvalidPattern):
        await IdPattern.read(text)


async def test_a_catastrophic_backtracking_pattern_takes_no_time() -> None:
    """A backtracking engine needs 2^40 steps to match (a|a)*b against forty times "a"."""
    async with asyncio.timeout(30):
        assert await (await IdPattern.read("(a|a)*b")).matching(["a" * 40, "a" * 40 + "b"], CLOCK) == {"a" * 40 + "b"}


async def test_the_event_loop_keeps_running_during_a_long_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "TURN_SECONDS", 0.0)
    long = ["ab" * 1000] * 40
    other = await IdPattern.read("x")
    slow = asyncio.create_task((await IdPattern.read(SLOW)).matching(long, CLOCK))
    turns = 0
    while not slow.done():
        assert await other.matching(["x"], CLOCK) == {"x"}
        turns += 1
    assert turns >= len(long) // 2
    assert slow.result() == set()
