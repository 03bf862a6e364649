"""Which quota holds for whom, and how long who used more has to wait."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog_broker.security.quotas.bucket import Bucket
from oncelog_broker.security.quotas.limits import Limit, limit_for, limit_of_address
from oncelog_broker.security.quotas.usage import SWEEP_SECONDS, Usage
from oncelog_protocol.quotas import DEFAULT, Default, Name, QuotaEntity, QuotaKey

KEY = QuotaKey.PRODUCER_BYTE_RATE
WINDOW = 10.0
IN_ORDER = [
    (QuotaEntity("u", "c"), QuotaEntity("u", "c")),
    (QuotaEntity("u", DEFAULT), QuotaEntity("u", "c")),
    (QuotaEntity("u", None), QuotaEntity("u", None)),
    (QuotaEntity(DEFAULT, "c"), QuotaEntity("u", "c")),
    (QuotaEntity(DEFAULT, DEFAULT), QuotaEntity("u", "c")),
    (QuotaEntity(DEFAULT, None), QuotaEntity("u", None)),
    (QuotaEntity(None, "c"), QuotaEntity(None, "c")),
    (QuotaEntity(None, DEFAULT), QuotaEntity(None, "c")),
]
NAMES: st.SearchStrategy[Name] = st.sampled_from(["u", "c", "<default>", DEFAULT, None])
ENTITIES = st.tuples(NAMES, NAMES).map(lambda names: QuotaEntity(*names))
QUOTAS = st.dictionaries(ENTITIES, st.dictionaries(st.sampled_from(list(QuotaKey)[:2]), st.floats(1, 9)), max_size=12)


@pytest.mark.parametrize("first", range(len(IN_ORDER)))
def test_the_most_particular_quota_holds(first: int) -> None:
    quotas = {entity: {KEY: float(number)} for number, (entity, _) in enumerate(IN_ORDER) if number >= first}
    assert limit_for("u", "c", KEY, quotas) == Limit(float(first), IN_ORDER[first][1])


def test_a_quota_of_others_or_of_something_else_does_not_hold() -> None:
    quotas = {QuotaEntity("v", None): {KEY: 1.0}, QuotaEntity("u", None): {QuotaKey.CONSUMER_BYTE_RATE: 1.0}}
    assert limit_for("u", "c", KEY, quotas) is None


def naive_limit(user: str, client_id: str, quotas: Mapping[QuotaEntity, Mapping[QuotaKey, float]]) -> float | None:
    """All that are about them, the one about the user before the one about the client id, a name before the default."""

    def rank(part: Name, name: str) -> int | None:
        if isinstance(part, Default):
            return 1
        return 2 if part == name else 0 if part is None else None

    ranked = [
        (rank(entity.user, user), rank(entity.client_id, client_id), values[KEY])
        for entity, values in quotas.items()
        if KEY in values and entity != QuotaEntity()
    ]
    return max(((u, c, value) for u, c, value in ranked if u is not None and c is not None), default=(0, 0, None))[2]


@given(QUOTAS, st.sampled_from(["u", "c", "<default>"]), st.sampled_from(["u", "c", ""]))
def test_it_is_the_one_that_a_naive_search_finds(
    quotas: dict[QuotaEntity, dict[QuotaKey, float]], user: str, client_id: str
) -> None:
    found = limit_for(user, client_id, KEY, quotas)
    assert (None if found is None else found.rate) == naive_limit(user, client_id, quotas)


def test_an_address_has_its_own_quota_or_the_default_for_itself() -> None:
    rate = QuotaKey.CONNECTION_CREATION_RATE
    quotas = {QuotaEntity(ip=DEFAULT): {rate: 1.0}, QuotaEntity(ip="::1"): {rate: 2.0}}
    assert limit_of_address("::1", quotas) == Limit(2.0, QuotaEntity(ip="::1"))
    assert limit_of_address("10.0.0.1", quotas) == Limit(1.0, QuotaEntity(ip="10.0.0.1"))
    assert limit_of_address("10.0.0.1", {}) is None


def test_who_used_too_much_waits_until_it_is_made_up_for() -> None:
    bucket = Bucket()
    assert bucket.use(100 * WINDOW, 100.0, 0.0, WINDOW) == 0
    assert bucket.use(50, 100.0, 0.0, WINDOW) == 0.5
    assert bucket.wait(0.25) == 0.25
    assert bucket.wait(0.5) == 0
    assert not bucket.is_as_new(10.0, WINDOW)
    assert bucket.is_as_new(10.5, WINDOW)


def test_a_quota_that_changes_leaves_what_was_waited_for() -> None:
    """A hundred times less a second later does not make a hundred times as long a wait of what was used before."""
    bucket = Bucket()
    assert bucket.use(1100, 100.0, 0.0, WINDOW) == 1.0
    assert bucket.use(1, 1.0, 0.0, WINDOW) == 2.0


def test_a_quota_that_was_too_low_by_mistake_is_waited_for_no_longer_when_it_is_corrected() -> None:
    usage = Usage(WINDOW)
    low, high = Limit(1.0, QuotaEntity("u")), Limit(1e6, QuotaEntity("u"))
    assert usage.use(KEY, low, 1e6, 0.0) == 1e6 - WINDOW
    assert usage.wait(KEY, high, 10.0) == pytest.approx((1e6 - WINDOW - 10) / 1e6)
    assert usage.wait(KEY, high, 10.0) < 1.0, "once"
    assert usage.wait(KEY, low, 10.0) < 1.0


def test_those_who_share_what_is_left_may_have_other_quotas() -> None:
    """None of them has the others wait for less."""
    usage = Usage(WINDOW, max_buckets=0)
    assert usage.use(KEY, Limit(1.0, QuotaEntity("u")), 100, 0.0) == 90
    assert usage.use(KEY, Limit(1e6, QuotaEntity("v")), 0, 0.0) == 90


@given(
    rate=st.floats(1, 1e6),
    uses=st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 5)), min_size=1, max_size=30),
)
def test_it_waits_as_a_naive_sum_does(rate: float, uses: list[tuple[float, float]]) -> None:
    """The sum has what is left, a window's worth at most: what is below nothing is waited for."""
    now, left, bucket = 0.0, rate * WINDOW, Bucket()
    for amount, pause in uses:
        now += pause
        left = min(left + pause * rate, rate * WINDOW) - amount
        waited = bucket.use(amount, rate, now, WINDOW)
        assert math.isclose(waited, max(0.0, -left / rate), rel_tol=1e-6, abs_tol=1e-6)


@given(
    rate=st.floats(1, 1e6),
    uses=st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 5)), min_size=1, max_size=30),
)
def test_whoever_waits_as_told_keeps_the_rate(rate: float, uses: list[tuple[float, float]]) -> None:
    now, used, last, bucket = 0.0, 0.0, 0.0, Bucket()
    for amount, pause in uses:
        now += pause
        now += bucket.use(amount, rate, now, WINDOW)
        used, last = used + amount, amount
    assert used - last <= rate * (now + WINDOW) * (1 + 1e-6) + 1e-6


def test_what_is_given_back_was_not_used() -> None:
    usage, limit = Usage(WINDOW), Limit(1.0, QuotaEntity("u"))
    assert usage.use(KEY, limit, 12, 0.0) == 2.0
    assert usage.use(KEY, limit, -12, 0.0) == 0
    assert usage.use(KEY, limit, 10, 0.0) == 0


def test_nobody_gets_around_a_quota_with_ever_new_names() -> None:
    usage = Usage(WINDOW, max_buckets=100)
    waits = [usage.use(KEY, Limit(1.0, QuotaEntity("u", str(each))), 5, 0.0) for each in range(1000)]
    assert not any(waits[:100])
    assert waits[102] == 5.0
    assert waits[-1] == 900 * 5 - WINDOW
    assert len(usage) <= 101


def test_who_rested_is_forgotten_and_who_waits_is_not() -> None:
    usage = Usage(WINDOW, max_buckets=100)
    busy = Limit(1.0, QuotaEntity("busy"))
    assert usage.use(KEY, busy, 1000, 0.0) == 990
    for each in range(99):
        usage.use(KEY, Limit(1.0, QuotaEntity("u", str(each))), 1, 0.0)
    later = WINDOW + SWEEP_SECONDS
    assert usage.use(KEY, Limit(1.0, QuotaEntity("v")), 1, later) == 0
    assert len(usage) == 2
    assert [(w.key, w.shared_by, w.seconds) for w in usage.waiting(later)] == [(KEY, busy.shared_by, 990 - later)]
