"""Which quota applies to a client, and how long a client over quota must wait."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog_broker.security.quotas.bucket import MAX_SECONDS, Bucket
from oncelog_broker.security.quotas.limits import Limit, limit_for, limit_of_address
from oncelog_broker.security.quotas.observed import (
    IDLE_SECONDS,
    MAX_NAMED,
    MAX_OTHERS,
    WITHOUT_PLACE,
    Observed,
    Recent,
    Seen,
)
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
def test_the_most_specific_quota_holds(first: int) -> None:
    quotas = {entity: {KEY: float(number)} for number, (entity, _) in enumerate(IN_ORDER) if number >= first}
    assert limit_for("u", "c", KEY, quotas) == Limit(float(first), IN_ORDER[first][1])


def test_a_quota_of_others_or_of_something_else_does_not_hold() -> None:
    quotas = {QuotaEntity("v", None): {KEY: 1.0}, QuotaEntity("u", None): {QuotaKey.CONSUMER_BYTE_RATE: 1.0}}
    assert limit_for("u", "c", KEY, quotas) is None


def naive_limit(user: str, client_id: str, quotas: Mapping[QuotaEntity, Mapping[QuotaKey, float]]) -> float | None:
    """Return the first matching quota, where user precedes client id, and a name precedes the default."""

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
def test_the_quota_in_force_is_the_one_of_a_naive_search(
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


def test_a_client_over_quota_waits_until_the_excess_is_paid_off() -> None:
    bucket = Bucket()
    assert bucket.use(100 * WINDOW, 100.0, 0.0, WINDOW) == 0
    assert bucket.use(50, 100.0, 0.0, WINDOW) == 0.5
    assert bucket.wait(0.25) == 0.25
    assert bucket.wait(0.5) == 0
    assert not bucket.is_as_new(10.0, WINDOW)
    assert bucket.is_as_new(10.5, WINDOW)


def test_a_changed_quota_keeps_the_present_debt() -> None:
    """Lowering a quota to a hundredth must not make a client wait a hundred times longer for its earlier usage."""
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


def test_entities_beyond_the_bucket_limit_share_one_debt() -> None:
    """A smaller usage by another user or client id does not shorten the wait that the first one caused."""
    usage = Usage(WINDOW, max_buckets=0)
    assert usage.use(KEY, Limit(1.0, QuotaEntity("u")), 100, 0.0) == 90
    assert usage.use(KEY, Limit(1e6, QuotaEntity("v")), 0, 0.0) == 90


@given(
    rate=st.floats(1, 1e6),
    uses=st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 5)), min_size=1, max_size=30),
)
def test_the_token_bucket_waits_as_long_as_a_naive_sum(rate: float, uses: list[tuple[float, float]]) -> None:
    """The test's simple model sums up the unused amount, which is at most that of one quota window. While the sum is
    negative the client waits, at
    most for the longest throttle time.
    """
    now, left, bucket = 0.0, rate * WINDOW, Bucket()
    for amount, pause in uses:
        now += pause
        left = max(min(left + pause * rate, rate * WINDOW) - amount, -MAX_SECONDS * rate)
        waited = bucket.use(amount, rate, now, WINDOW)
        assert math.isclose(waited, max(0.0, -left / rate), rel_tol=1e-6, abs_tol=1e-6)


@given(
    rate=st.floats(1, 1e6),
    uses=st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 5)), min_size=1, max_size=30),
)
def test_a_client_that_waits_as_told_keeps_the_rate(rate: float, uses: list[tuple[float, float]]) -> None:
    now, used, last, bucket = 0.0, 0.0, 0.0, Bucket()
    for amount, pause in uses:
        now += pause
        now += bucket.use(amount, rate, now, WINDOW)
        used, last = used + amount, amount
    assert used - last <= rate * (now + WINDOW) * (1 + 1e-6) + 1e-6


def test_returned_usage_does_not_count() -> None:
    usage, limit = Usage(WINDOW), Limit(1.0, QuotaEntity("u"))
    assert usage.use(KEY, limit, 12, 0.0) == 2.0
    assert usage.use(KEY, limit, -12, 0.0) == 0
    assert usage.use(KEY, limit, 10, 0.0) == 0


def test_ever_new_client_ids_do_not_evade_a_quota() -> None:
    usage = Usage(WINDOW, max_buckets=100)
    waits = [usage.use(KEY, Limit(1.0, QuotaEntity("u", str(each))), 5, 0.0) for each in range(1000)]
    assert not any(waits[:100])
    assert waits[102] == 5.0
    assert waits[-1] == 900 * 5 - WINDOW
    assert len(usage) <= 101


def test_an_idle_client_is_forgotten_and_a_waiting_one_is_not() -> None:
    usage = Usage(WINDOW, max_buckets=100)
    busy = Limit(1.0, QuotaEntity("busy"))
    assert usage.use(KEY, busy, 1000, 0.0) == 990
    for each in range(99):
        usage.use(KEY, Limit(1.0, QuotaEntity("u", str(each))), 1, 0.0)
    later = WINDOW + SWEEP_SECONDS
    assert usage.use(KEY, Limit(1.0, QuotaEntity("v")), 1, later) == 0
    assert len(usage) == 2
    assert usage.wait(KEY, busy, later) == 990 - later


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(0, 1e6)), max_size=30))
def test_a_recent_sum_is_of_the_latest_span(added: list[tuple[float, float]]) -> None:
    """Amounts of the previous time span count less and less; those of the present span count fully."""
    recent, now = Recent(WINDOW), 1000.0
    for pause, amount in added:
        now += pause
        recent.add(amount, now)
    times = [1000.0 + sum(pause for pause, _ in added[: number + 1]) for number in range(len(added))]
    begun = now // WINDOW * WINDOW
    of_this = sum(amount for when, (_, amount) in zip(times, added, strict=True) if when >= begun)
    before = sum(amount for when, (_, amount) in zip(times, added, strict=True) if begun - WINDOW <= when < begun)
    assert recent.sum(now) == pytest.approx(of_this + before * (1 - (now - begun) / WINDOW), rel=1e-6, abs=1e-3)
    assert recent.rate(now + 2 * WINDOW) == 0


def test_a_steady_rate_is_told_as_it_is() -> None:
    recent = Recent(WINDOW)
    for tenth in range(1000):
        recent.add(5, tenth / 10)
    assert recent.rate(99.95) == pytest.approx(50, rel=0.02)


def test_usage_and_waiting_are_reported_per_shared_quota() -> None:
    observed = Observed(WINDOW)
    observed.used(KEY, QuotaEntity("u"), 1000, 1.0)
    observed.used(KEY, QuotaEntity("u", "c"), 500, 1.0)
    observed.used(QuotaKey.CONSUMER_BYTE_RATE, QuotaEntity(None, "c"), 300, 1.0)
    observed.waits(KEY, QuotaEntity("u"), 0.5, 1.0)
    observed.waits(KEY, QuotaEntity("u"), 1.5, 1.0)
    assert list(observed.seen(KEY, 1.0)) == [Seen("u", "", 100.0, 1000.0), Seen("u", "c", 50.0, 0.0)]
    assert list(observed.seen(QuotaKey.CONSUMER_BYTE_RATE, 1.0)) == [Seen("", "c", 30.0, 0.0)]
    assert list(observed.seen(KEY, 2.0 + IDLE_SECONDS)) == []


def test_many_client_ids_make_few_time_series_and_displace_no_other() -> None:
    observed = Observed(WINDOW)
    names = [QuotaEntity(None, f"named-{number}") for number in range(MAX_NAMED)]
    observed.quotas = {QuotaEntity(None, DEFAULT): {KEY: 1.0}} | {name: {KEY: 1.0} for name in names}
    for number in range(10_000):
        observed.used(KEY, QuotaEntity(None, f"made-up-{number}"), 1, 1.0)
    for name in names:
        observed.used(KEY, name, 7, 1.0)
    told = {(seen.user, seen.client_id): seen.rate * WINDOW for seen in observed.seen(KEY, 1.0)}
    assert len(observed) == len(told) == MAX_NAMED + MAX_OTHERS + 1
    assert told[WITHOUT_PLACE] == 10_000 - MAX_OTHERS
    assert all(told["", f"named-{number}"] == 7 for number in range(MAX_NAMED))
    later = 2.0 + IDLE_SECONDS
    observed.used(KEY, QuotaEntity(None, "new"), 1, later)
    assert [seen.client_id for seen in observed.seen(KEY, later)] == ["new"], "after an hour places are free"
    assert len(observed) == 1


@given(st.lists(st.tuples(st.sampled_from(["u", "", None]), st.sampled_from(["c", "", None])), max_size=20))
def test_no_two_samples_have_the_same_labels(entities: list[tuple[str | None, str | None]]) -> None:
    observed = Observed(WINDOW)
    for user, client_id in entities:
        observed.used(KEY, QuotaEntity(user, client_id), 1, 1.0)
    labels = [(seen.user, seen.client_id) for seen in observed.seen(KEY, 1.0)]
    assert len(set(labels)) == len(labels)
