"""Appends wait for the high watermark and fetches wait for bytes; each gets one response and is then released."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_broker.replication.purgatory import (
    APPENDS_BEFORE_LOOK,
    NEWS_SECONDS,
    NEWS_SECONDS_PER_PARTITION,
    WOKEN_PER_TURN,
    DelayedFetch,
    NewsPace,
    Purgatory,
    no_longer_than,
)
from oncelog_protocol.errors import ErrorCode


def fetch_of(missing_bytes: int) -> tuple[DelayedFetch, list[Any]]:
    partitions: list[Any] = [SimpleNamespace(purgatory=Purgatory()), SimpleNamespace(purgatory=Purgatory())]
    return DelayedFetch(partitions, missing_bytes), partitions


class Timers:
    """Replaces Deadlines: timers fire when the test says so."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Any]] = []

    def after(self, seconds: float, callback: Any) -> None:
        self.set.append((seconds, callback))

    def unless_done(self, answer: Any, seconds: float, callback: Any) -> None:
        self.set.append((seconds, callback))


async def test_a_fetch_has_enough_once_the_bytes_can_be_read() -> None:
    fetch, partitions = fetch_of(100)
    partitions[0].purgatory.on_readable(60, 0)
    assert not fetch.enough.done()
    assert all(fetch in partition.purgatory.fetches for partition in partitions)
    partitions[1].purgatory.on_readable(40, 0)
    partitions[1].purgatory.on_readable(40, 0)
    assert fetch.enough.done()


EVENTS: list[Any] = [
    lambda purgatory: purgatory.on_readable(1, 1),
    lambda purgatory: purgatory.on_appended(1),
    lambda purgatory: purgatory.on_high_watermark(1),
    lambda purgatory: purgatory.on_too_few_replicas(),
    lambda purgatory: purgatory.on_resigned(),
]


@pytest.mark.parametrize("event", EVENTS)
async def test_s87_one_event_answers_some_in_each_turn(event: Any) -> None:
    """A thousand consumers wait at one partition when a record is appended."""
    partition: Any = SimpleNamespace(purgatory=Purgatory())
    many = 3 * WOKEN_PER_TURN + 1
    fetches = [DelayedFetch([partition], 1).enough for _ in range(many)]
    followers = [DelayedFetch([partition], 1, hurry=lambda _: None).enough for _ in range(many)]
    appends = [partition.purgatory.for_offset(1, needs_replicas=True) for _ in range(many)]

    def answered() -> int:
        return sum(answer.done() for answer in (*fetches, *followers, *appends))

    event(partition.purgatory)
    counts = [0, answered()]
    event(partition.purgatory)  # no waiting request gets a second response
    while counts[-1] > counts[-2]:
        await asyncio.sleep(0)
        counts.append(answered())
    assert counts[-1] in (many, 3 * many)
    assert max(after - before for before, after in pairwise(counts)) <= 2 * WOKEN_PER_TURN


async def test_a_fetch_lets_go_of_its_partitions_however_it_ends() -> None:
    for end in (lambda fetch: fetch.finish(), lambda fetch: fetch.enough.cancel()):
        fetch, partitions = fetch_of(100)
        end(fetch)
        await asyncio.sleep(0)
        assert not any(partition.purgatory.fetches for partition in partitions)


async def test_a_late_deadline_does_nothing() -> None:
    fetch, partitions = fetch_of(1)
    partitions[0].purgatory.on_readable(1, 0)
    fetch.finish()
    assert fetch.enough.done()


async def test_appends_are_answered_as_the_high_watermark_passes_them_in_whatever_order_they_came() -> None:
    purgatory = Purgatory()
    answers = {offset: purgatory.for_offset(offset, needs_replicas=True) for offset in (5, 3, 9, 4)}
    purgatory.on_high_watermark(4)
    assert {offset for offset, answer in answers.items() if answer.done()} == {3, 4}
    purgatory.on_high_watermark(9)
    assert {answer.result() for answer in answers.values()} == {ErrorCode.NONE}


async def test_too_few_replicas_end_acks_all_waits_and_resigning_ends_the_others() -> None:
    purgatory = Purgatory()
    producer = purgatory.for_offset(1, needs_replicas=True)
    coordinator = purgatory.for_offset(1, needs_replicas=False)
    purgatory.on_too_few_replicas()
    assert producer.result() is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert not coordinator.done()
    purgatory.on_resigned()
    assert coordinator.result() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not purgatory.appends


async def test_an_answer_that_is_there_needs_no_deadline_and_one_that_is_late_is_harmless() -> None:
    timers: Any = Timers()
    assert no_longer_than(1.0, ErrorCode.NONE, timers) is ErrorCode.NONE
    assert timers.set == []
    purgatory = Purgatory()
    first, second = (purgatory.for_offset(1, needs_replicas=True) for _ in range(2))
    for answer in (first, second):
        no_longer_than(1.0, answer, timers)
    timers.set[0][1]()
    purgatory.on_high_watermark(1)
    timers.set[1][1]()
    assert first.result() is ErrorCode.REQUEST_TIMED_OUT
    assert second.result() is ErrorCode.NONE


async def test_appends_that_nobody_waits_for_any_more_are_forgotten() -> None:
    purgatory = Purgatory()
    kept = purgatory.for_offset(7, needs_replicas=True)
    for _ in range(3 * APPENDS_BEFORE_LOOK):
        purgatory.for_offset(8, needs_replicas=True).cancel()
    assert len(purgatory.appends) <= APPENDS_BEFORE_LOOK + 1
    purgatory.on_high_watermark(7)
    assert kept.result() is ErrorCode.NONE


def test_a_follower_of_many_partitions_is_told_soon_and_then_not_again_for_a_while() -> None:
    pace = NewsPace()
    assert pace.seconds(2, 300, now=100.0) == pytest.approx(NEWS_SECONDS)
    assert pace.seconds(2, 300, now=100.02) == pytest.approx(300 * NEWS_SECONDS_PER_PARTITION - 0.01)
    assert pace.seconds(3, 300, now=100.02) == pytest.approx(NEWS_SECONDS), "each follower has its own pace"
    assert pace.seconds(2, 300, now=200.0) == pytest.approx(NEWS_SECONDS)
