"""Patterns of transactional ids: what they match, what is refused, and who waits for them."""

from __future__ import annotations

import asyncio

import pytest

from oncelog_broker.coordinator.transaction import patterns
from oncelog_broker.coordinator.transaction.patterns import IdPattern, InvalidPattern
from oncelog_broker.runtime.clock import SystemClock

CLOCK = SystemClock()
SLOW = "(((((a?b?){1,6}){1,6}){1,6})*)c"
"""Of many steps, none of which RE2 can remember the outcome of."""


async def test_the_whole_id_matches() -> None:
    ids = ["orders-1", "orders-22", "my-orders-1", "orders-"]
    assert await IdPattern(r"orders-\d+").matching(ids, CLOCK) == {"orders-1", "orders-22"}
    assert await IdPattern("").matching(["", "a"], CLOCK) == {""}
    assert await IdPattern("é|日.*").matching(["é", "日本", "e"], CLOCK) == {"é", "日本"}


@pytest.mark.parametrize(
    "text", ["(", "a{2,1}", r"(a)\1", "(?=a)", "x" * 257, r"(\pL{30}){30}", "((a{50}){50}){50}", "((a?){44}){50}"]
)
def test_what_is_no_pattern_or_too_much_of_one_is_refused(text: str) -> None:
    with pytest.raises(InvalidPattern):
        IdPattern(text)


async def test_what_takes_others_for_ever_takes_no_time() -> None:
    """(a|a)*b on forty times a is 2^40 steps by trial and error."""
    async with asyncio.timeout(30):
        assert await IdPattern("(a|a)*b").matching(["a" * 40, "a" * 40 + "b"], CLOCK) == {"a" * 40 + "b"}


async def test_the_loop_goes_on_and_others_get_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "TURN_SECONDS", 0.0)
    long = ["ab" * 1000] * 40
    slow = asyncio.create_task(IdPattern(SLOW).matching(long, CLOCK))
    turns = 0
    while not slow.done():
        assert await IdPattern("x").matching(["x"], CLOCK) == {"x"}
        turns += 1
    assert turns >= len(long) // 2
    assert slow.result() == set()
