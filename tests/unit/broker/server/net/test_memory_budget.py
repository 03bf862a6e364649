"""The memory budget: shares of connections, the one connection that may exceed its share, and the progress that a
connection with memory must make.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from oncelog_broker.server.net.memory_budget import (
    NO_LIMIT,
    PROGRESS_WINDOW_SECONDS,
    TURNOVER_SECONDS,
    UNLIMITED,
    Holding,
    MemoryBudget,
    Progress,
)

MB = 1_000_000


def grown(holding: Holding, step: int = MB // 10) -> int:
    """Let a connection take as much memory as its share permits; return the number of bytes."""
    while holding.room >= step:
        assert holding.hold(holding.held + step)
    return holding.held


def test_a_single_connection_may_hold_more_than_half_of_the_memory() -> None:
    budget = MemoryBudget(256 * MB)
    assert 143 * MB < grown(Holding(budget, "a")) <= 144 * MB
    assert budget.total == budget.used


def test_a_newcomer_finds_memory_however_many_hold_their_share() -> None:
    budget = MemoryBudget(256 * MB)
    held = [grown(Holding(budget, "hostile"), 1000) for _ in range(200)]
    assert held[0] > 100 * MB
    assert Holding(budget, "hostile").room < 1000, "all that one address may have"
    assert Holding(budget, "other").room > 35 * MB


def test_connections_that_grow_together_get_equal_shares() -> None:
    budget = MemoryBudget(256 * MB)
    holdings = [Holding(budget, "a") for _ in range(4)]
    growing = True
    while growing:
        growing = False
        for holding in holdings:
            if holding.room >= 10_000:
                growing = holding.hold(holding.held + 10_000)
    held = [holding.held for holding in holdings]
    assert max(held) - min(held) <= 20_000
    assert Holding(budget, "a").room > 10 * MB, "an honest request beside them"


def test_one_connection_at_a_time_may_exceed_its_share() -> None:
    budget = MemoryBudget(10 * MB)
    first, second, third = (Holding(budget, "a") for _ in range(3))
    assert first.hold(4 * MB)
    assert second.hold(8 * MB)
    assert budget.beyond is second
    assert third.hold(1 * MB), "what goes beyond takes nothing from the shares of others"
    assert not third.hold(8 * MB)
    assert budget.is_short
    assert budget.total == 13 * MB
    second.owe(0)
    assert third.hold(8 * MB)
    for holding in (first, third):
        holding.owe(0)
    assert (budget.total, budget.beyond, budget.is_short, budget.by_address) == (0, None, False, Counter())


def test_the_waiting_connection_that_needs_least_goes_first() -> None:
    budget = MemoryBudget(10 * MB)
    first, large, small, gone = (Holding(budget, "a") for _ in range(4))
    assert first.hold(9 * MB)
    assert not large.hold(8 * MB, 9 * MB)
    assert not gone.hold(7 * MB)
    assert not small.hold(7 * MB, 8 * MB)
    first.owe(0)
    assert not large.hold(8 * MB, 9 * MB)
    assert not small.hold(7 * MB, 8 * MB)
    gone.wait_no_longer()
    assert not large.hold(8 * MB, 9 * MB)
    assert small.hold(7 * MB, 8 * MB)
    small.owe(0)
    assert large.hold(8 * MB, 9 * MB)


def test_a_connection_back_below_its_share_frees_the_exception() -> None:
    budget = MemoryBudget(10 * MB)
    first = Holding(budget, "a")
    assert first.hold(9 * MB)
    assert first.hold(2 * MB)
    assert (budget.beyond, budget.used) == (None, 2 * MB)


def test_memory_in_use_is_counted_whether_allowed_or_not() -> None:
    budget = MemoryBudget(10 * MB)
    holding = Holding(budget, "a")
    holding.owe(50 * MB)
    assert (budget.total, holding.room) == (50 * MB, 0)
    assert not Holding(budget, "b").allows(1)
    assert budget.is_short
    holding.owe(5 * MB)
    assert not budget.is_short
    assert Holding(budget, "b").allows(MB)


def test_a_budget_without_limit_allows_everything() -> None:
    budget = MemoryBudget(NO_LIMIT)
    holding = Holding(budget, "a")
    assert holding.hold(10**12)
    assert holding.room == UNLIMITED
    assert not budget.is_tight


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 60_000)), max_size=60))
def test_the_memory_in_use_is_at_most_the_budget_and_one_request(changes: list[tuple[int, int]]) -> None:
    budget = MemoryBudget(100_000)
    holdings = [Holding(budget, f"127.0.0.{number % 3}") for number in range(12)]
    for number, size in changes:
        before = holdings[number].held
        granted = holdings[number].hold(size)
        assert holdings[number].held == (size if granted else before)
        beyond = 0 if budget.beyond is None else budget.beyond.held
        assert budget.used <= budget.limit
        assert budget.total == sum(holding.held for holding in holdings) <= budget.limit + 60_000
        assert budget.used == budget.total - beyond == sum(budget.by_address.values())
    for holding in holdings:
        holding.owe(0)
    assert (budget.total, budget.by_address) == (0, Counter())


def test_a_connection_that_holds_memory_must_make_progress() -> None:
    held = 30 * MB
    rate = held / TURNOVER_SECONDS
    progress = Progress(100.0)
    moved, now = 0, 100.0
    for _ in range(5):
        now += PROGRESS_WINDOW_SECONDS
        moved += round(rate * PROGRESS_WINDOW_SECONDS) + 1
        assert not progress.is_too_slow(now, moved, held)
    now += PROGRESS_WINDOW_SECONDS - 1
    assert not progress.is_too_slow(now, moved, held), "too soon to say"
    assert progress.is_too_slow(now + 1, moved + 1000, held)
    progress.restart(now, moved)
    assert not progress.is_too_slow(now + 1, moved, held)
    assert not progress.is_too_slow(now + 1000, moved, 0)
