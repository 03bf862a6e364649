"""Which quota holds for whom, and how long who used more has to wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog_broker.security.quotas.bucket import WINDOW_SECONDS, Bucket
from oncelog_broker.security.quotas.limits import DEFAULT, Entity, Limit, QuotaKey, limit_for

KEY = QuotaKey.PRODUCER_BYTE_RATE
IN_ORDER = [
    (Entity("u", "c"), Entity("u", "c")),
    (Entity("u", DEFAULT), Entity("u", "c")),
    (Entity("u", None), Entity("u", None)),
    (Entity(DEFAULT, "c"), Entity("u", "c")),
    (Entity(DEFAULT, DEFAULT), Entity("u", "c")),
    (Entity(DEFAULT, None), Entity("u", None)),
    (Entity(None, "c"), Entity(None, "c")),
    (Entity(None, DEFAULT), Entity(None, "c")),
]


@pytest.mark.parametrize("first", range(len(IN_ORDER)))
def test_the_most_particular_quota_holds(first: int) -> None:
    quotas = {entity: {KEY: float(number)} for number, (entity, _) in enumerate(IN_ORDER) if number >= first}
    assert limit_for("u", "c", KEY, quotas) == Limit(float(first), IN_ORDER[first][1])


def test_a_quota_of_others_or_of_something_else_does_not_hold() -> None:
    quotas = {Entity("v", None): {KEY: 1.0}, Entity("u", None): {QuotaKey.CONSUMER_BYTE_RATE: 1.0}}
    assert limit_for("u", "c", KEY, quotas) is None


def test_who_used_too_much_waits_until_it_is_made_up_for() -> None:
    bucket = Bucket(100.0, 0.0)
    assert bucket.use(100 * WINDOW_SECONDS, 0.0) == 0
    assert bucket.use(50, 0.0) == 0.5
    assert bucket.use(0, 0.25) == 0.25
    assert bucket.use(0, 0.5) == 0


def test_a_strict_quota_is_exceeded_once_and_then_refused() -> None:
    bucket = Bucket(1.0, 0.0)
    assert bucket.use_if_there(30, 0.0) == 0
    assert bucket.use_if_there(1, 0.0) == 20
    assert bucket.use_if_there(1, 20.0) == 0


def test_nothing_is_nothing() -> None:
    assert Bucket(0.0, 0.0).use(1, 5.0) == WINDOW_SECONDS


@given(
    rate=st.floats(1, 1e6),
    uses=st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 5)), min_size=1, max_size=30),
)
def test_whoever_waits_as_told_keeps_the_rate(rate: float, uses: list[tuple[float, float]]) -> None:
    now, used, last = 0.0, 0.0, 0.0
    bucket = Bucket(rate, now)
    for amount, pause in uses:
        now += pause
        now += bucket.use(amount, now)
        used, last = used + amount, amount
    assert used - last <= rate * (now + WINDOW_SECONDS) * (1 + 1e-6) + 1e-6
