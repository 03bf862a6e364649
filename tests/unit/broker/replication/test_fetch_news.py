"""A follower gets news that it did not apply again, and reports a log start that became durable without news."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.served import FOLLOWER, LEADER
from tests.unit.broker.replication.test_fetcher import BOTH, LIMITS, Pair

from oncelog_broker.replication.fetch_plan import FetchPlan, Key
from oncelog_broker.replication.follower_progress import FetchPosition
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse

KEY, OTHER = (bytes(16), 0), (bytes(16), 1)
POSITION = FetchPosition(5, 0, 0)
SESSION = 77
WAIT_MS = int(LIMITS.max_wait_seconds * 1000)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    made = Pair(tmp_path)
    yield made
    await made.tasks.close()
    await made.served.tasks.close()
    made.follower.log.close()
    made.served.leave()


async def until_requests(pair: Pair, count: int) -> None:
    """Wait until the follower has sent `count` more requests."""
    before = len(pair.wire.asked)
    await pair.until(lambda: len(pair.wire.asked) >= before + count)


def delete_on_leader(pair: Pair, offset: int) -> None:
    pair.leader.log.trimmer.delete_records_before(offset)
    pair.leader.on_log_start_moved()


# --- log starts that become durable without news from the leader


@pytest.mark.parametrize("way", ["the follower's retention ran first", "the first write failed"])
async def test_a_log_start_that_is_noted_later_is_reported_without_news(pair: Pair, way: str) -> None:
    """Otherwise the replica could never join the ISR of an idle partition again."""
    pair.begin()
    pair.produce(40)
    await pair.until_the_same()
    if way == "the first write failed":
        pair.disk_is_full = True
    else:
        pair.follower.log.trimmer.delete_records_before(30)
    delete_on_leader(pair, 30)
    await pair.until(lambda: pair.follower.log.log_start_offset == 30)
    await until_requests(pair, 3)
    pair.leader.lead(0, (LEADER,), BOTH, partition_epoch=1)
    await until_requests(pair, 3)
    assert not pair.served.joining, "the log start is not on the disk yet"
    pair.disk_is_full = False
    pair._note_log_starts()  # the periodic checkpoint
    await pair.until(lambda: bool(pair.served.joining))
    assert pair.leader.followers[FOLLOWER].log_start_offset == 30


async def test_a_log_start_that_a_sync_makes_durable_is_reported(pair: Pair) -> None:
    pair.begin()
    pair.produce(40)
    await pair.until_the_same()
    pair.disk_is_full = True
    delete_on_leader(pair, 30)
    await pair.until(lambda: pair.follower.log.log_start_offset == 30)
    await until_requests(pair, 3)
    assert pair.leader.low_watermark == 0
    await asyncio.to_thread(pair.follower.log.state.note_synced_names, 20)
    await pair.until(lambda: pair.leader.low_watermark == 20)


async def test_no_log_tells_a_fetcher_that_does_not_fetch_it(pair: Pair) -> None:
    pair.begin()
    assert pair.follower.log.state.on_durable_start is not None
    pair.fetchers.forget(pair.follower)
    assert pair.follower.log.state.on_durable_start is None


# --- news that was not applied


async def test_news_that_a_paused_log_refused_is_sent_again(pair: Pair) -> None:
    """A log is paused while its copy in another data directory replaces it."""
    pair.begin()
    pair.produce(40)
    await pair.until_the_same()
    await until_requests(pair, 3)
    pair.follower.log.pause()
    delete_on_leader(pair, 30)
    answer = pair.leader.deleted_everywhere(30)
    await pair.until(lambda: not pair.fetchers.hears(pair.follower))
    pair.follower.log.resume()
    pair.follower.on_log_resumed()
    pair.fetchers.follow(pair.follower)
    await pair.until(lambda: pair.follower.log.log_start_offset == 30)
    assert isinstance(answer, asyncio.Future)
    async with asyncio.timeout(20):
        assert await answer == ErrorCode.NONE


async def test_news_that_arrives_after_an_election_is_sent_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same leader is elected again while its response in the former leader epoch is on its way."""
    pair.begin()
    pair.produce(40)
    await pair.until_the_same()
    await until_requests(pair, 3)
    send, elections = pair.wire.send, []

    async def elect(*args: Any, **options: Any) -> Any:
        response = await send(*args, **options)
        if response.responses and not elections:
            elections.append(response)
            pair.begin(epoch=1)
        return response

    monkeypatch.setattr(pair.wire, "send", elect)
    await until_requests(pair, 1)
    delete_on_leader(pair, 30)
    await pair.until(lambda: pair.follower.log.log_start_offset == 30)
    assert elections


# --- the requests of a plan


def next_request(plan: FetchPlan, now: float = 0.0) -> FetchRequest:
    request = plan.next_request(FOLLOWER, 1, now)
    assert request is not None
    return request


def named(request: FetchRequest) -> set[Key]:
    return {(topic.topic_id, part.partition) for topic in request.topics for part in topic.partitions}


def forgotten(request: FetchRequest) -> set[Key]:
    return {(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions}


def begun(*keys: Key) -> FetchPlan:
    """Return a plan with a fetch session that has these partitions."""
    plan = FetchPlan(LIMITS)
    for key in keys:
        plan.ask_for(key, POSITION)
    assert named(next_request(plan)) == set(keys)
    assert list(plan.on_response(FetchResponse(session_id=SESSION, responses=[]))) == []
    return plan


def rests(plan: FetchPlan) -> None:
    plan.rest(KEY, POSITION, now=-1.0)


def is_followed_again(plan: FetchPlan) -> None:
    plan.leave_out(KEY)
    plan.ask_for(KEY, POSITION)


def is_asked_again(plan: FetchPlan) -> None:
    plan.ask_again(KEY, POSITION)


def is_asked_in_a_new_epoch(plan: FetchPlan) -> None:
    plan.ask_again(KEY, POSITION._replace(leader_epoch=1))


@pytest.mark.parametrize("keys", [(KEY,), (KEY, OTHER)], ids=["alone", "beside another"])
@pytest.mark.parametrize("event", [rests, is_followed_again, is_asked_again, is_asked_in_a_new_epoch])
def test_a_partition_without_an_applied_response_joins_the_session_anew(
    event: Callable[[FetchPlan], None], keys: tuple[Key, ...]
) -> None:
    plan = begun(*keys)
    event(plan)
    first = next_request(plan)
    assert (named(first), forgotten(first), first.max_wait_ms) == (set(), {KEY}, 0), "the follower must not wait here"
    second = next_request(plan)
    assert (named(second), forgotten(second), second.max_wait_ms) == ({KEY}, set(), WAIT_MS)
    third = next_request(plan)
    assert (named(third), forgotten(third), third.max_wait_ms) == (set(), set(), WAIT_MS)


def test_a_partition_joins_anew_with_a_new_session() -> None:
    plan = begun(KEY, OTHER)
    is_asked_again(plan)
    plan.on_lost()
    assert named(next_request(plan)) == {KEY, OTHER}
    assert list(plan.on_response(FetchResponse(session_id=SESSION, responses=[]))) == []
    after = next_request(plan)
    assert (named(after), forgotten(after)) == (set(), set())


def test_a_partition_that_was_left_out_for_a_request_joins_with_one_request() -> None:
    plan = begun(KEY, OTHER)
    plan.rest(KEY, POSITION, now=0.0)
    first = next_request(plan)
    assert (named(first), forgotten(first), first.max_wait_ms) == (set(), {KEY}, WAIT_MS)
    second = next_request(plan, now=1.0)
    assert (named(second), forgotten(second), second.max_wait_ms) == ({KEY}, set(), WAIT_MS)


def test_a_throttled_partition_stays_in_the_session_if_no_request_comes_between() -> None:
    """Its last response was applied."""
    plan = begun(KEY)
    plan.hold_back(KEY, POSITION, until=1.0)
    assert plan.next_request(FOLLOWER, 1, now=0.0) is None
    request = next_request(plan, now=1.0)
    assert (named(request), forgotten(request)) == (set(), set())


def test_a_new_position_ends_no_back_off() -> None:
    plan = begun(KEY, OTHER)
    plan.rest(KEY, POSITION, now=0.0)
    plan.update_position(KEY, POSITION._replace(log_start_offset=3))
    assert named(next_request(plan)) == set()
    (topic,) = next_request(plan, now=1.0).topics
    assert [part.log_start_offset for part in topic.partitions] == [3]


def test_a_new_position_adds_no_partition() -> None:
    plan = begun(KEY)
    plan.update_position(OTHER, POSITION)
    assert OTHER not in plan
