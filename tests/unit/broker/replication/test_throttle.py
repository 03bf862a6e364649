"""Throttled replicas catch up at the configured average rate; other replicas are not throttled."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.served import LEADER
from tests.support.storage import SMALL
from tests.unit.broker.replication.test_fetcher import BOTH, LIMITS, Pair

from oncelog_broker.replication import fetcher
from oncelog_broker.replication.fetch_plan import FetchPlan
from oncelog_broker.replication.follower_progress import FetchPosition
from oncelog_broker.replication.throttle import BURST_SECONDS, UNLIMITED, ReplicationQuota, is_listed

THROTTLED = replace(
    SMALL,
    leader_replication_throttled_replicas=frozenset({"*"}),
    follower_replication_throttled_replicas=frozenset({"*"}),
)


@given(
    rate=st.integers(1, 10**9),
    sizes=st.lists(st.integers(1, 10**7), min_size=1, max_size=50),
    pauses=st.lists(st.floats(0, 3), min_size=50, max_size=50),
)
def test_the_rate_holds_on_average_but_for_one_response_and_a_second(
    rate: int, sizes: list[int], pauses: list[float]
) -> None:
    quota, now, sent = ReplicationQuota(), 100.0, 0
    quota.limit(rate, now)
    for size, pause in zip(sizes, pauses, strict=False):
        now += pause
        now += quota.seconds_left(now)
        assert not quota.is_exceeded(now)
        quota.record(size, now)
        sent += size
        allowed = rate * (now - 100.0 + BURST_SECONDS) + size
        assert sent <= allowed * (1 + 1e-6) + 1


class CountingQuota(ReplicationQuota):
    looked = 0

    def is_exceeded(self, now: float) -> bool:
        self.looked += 1
        return super().is_exceeded(now)


def test_no_replica_is_throttled_without_a_limit() -> None:
    quota = ReplicationQuota()
    quota.record(10**15, 1.0)
    quota.limit(UNLIMITED, 2.0)
    quota.record(10**15, 2.0)
    assert not quota.is_exceeded(2.0)
    assert quota.seconds_left(2.0) == 0


def test_a_rate_of_zero_lets_nothing_pass_until_it_changes() -> None:
    quota = ReplicationQuota()
    quota.limit(0, 1.0)
    assert quota.is_exceeded(1e9)
    assert quota.seconds_left(1e9) == math.inf
    quota.limit(1000, 1e9)
    assert not quota.is_exceeded(1e9)


@pytest.mark.parametrize(
    ("listed", "throttled"),
    [((), False), (("*",), True), (("3:1", "4:1"), True), (("3:2", "4:1"), False)],
)
def test_only_listed_replicas_are_throttled(listed: tuple[str, ...], throttled: bool) -> None:
    assert is_listed(frozenset(listed), 3, 1) is throttled


def test_a_throttled_partition_leaves_the_session_and_returns() -> None:
    plan = FetchPlan(LIMITS)
    key, position = (bytes(16), 0), FetchPosition(5, 0, 0)
    plan.ask_for(key, position)
    plan.ask_for((bytes(16), 1), position)
    plan.hold_back(key, position, until=7.0)
    assert key in plan
    request = plan.next_request(1, 1, now=6.0)
    assert request is not None
    assert [part.partition for part in request.topics[0].partitions] == [1]
    assert plan.next_end_of_a_rest() == 7.0
    plan.on_lost()
    request = plan.next_request(1, 1, now=7.0)
    assert request is not None
    assert len(request.topics[0].partitions) == 2


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    made = Pair(tmp_path)
    yield made
    await made.tasks.close()
    await made.served.tasks.close()
    made.follower.log.close()
    made.served.leave()


async def test_a_follower_does_not_fetch_throttled_partitions(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first response shows that the follower lags and exceeds the rate; from then on the follower does not fetch
    the partition.
    """
    monkeypatch.setattr(fetcher, "MAX_HOLD_SECONDS", 1e-6)  # the throttle time ends at the next clock reading
    quota = CountingQuota()
    quota.limit(1, 0.0)
    pair.fetchers._quota = quota
    pair.follower.update_config(THROTTLED)
    pair.produce(30)
    pair.begin(isr=(LEADER,))
    await pair.until(lambda: pair.follower.log.log_end_offset > 0)
    held, looked = pair.follower.log.log_end_offset, quota.looked
    await pair.until(lambda: quota.looked > looked + 20)
    assert pair.follower.log.log_end_offset == held < 30
    assert len(pair.wire.asked) == 1
    quota.limit(UNLIMITED, 0.0)
    await pair.until_the_same()


async def test_a_throttled_leader_gives_no_records_to_a_lagging_replica(pair: Pair) -> None:
    pair.leader.update_config(THROTTLED)
    pair.served.services.throttles.leader.limit(0, 0.0)
    pair.produce(30)
    pair.begin(isr=(LEADER,))
    await pair.until(lambda: len(pair.wire.asked) >= 3)
    assert pair.follower.log.log_end_offset == 0
    pair.served.services.throttles.leader.limit(UNLIMITED, 0.0)
    await pair.until_the_same()


async def test_an_in_sync_replica_is_never_throttled(pair: Pair) -> None:
    for replica in (pair.leader, pair.follower):
        replica.update_config(THROTTLED)
    pair.served.services.throttles.leader.limit(0, 0.0)
    pair.begin(isr=BOTH)
    await pair.until(lambda: len(pair.wire.asked) >= 2)
    pair.fetchers._quota.limit(0, 0.0)
    pair.produce(10)
    await pair.until_the_same()
