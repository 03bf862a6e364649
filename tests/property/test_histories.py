"""The history checker accepts every correct history, whichever responses were lost, and finds each seeded violation."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.good_histories import GoodCluster

from oncelog_testing.history.checker import violations
from oncelog_testing.history.events import NOT_YET, Commit, End, Outcome, Place, Send
from oncelog_testing.history.recorder import History
from oncelog_testing.history.violation import Kind

T = TypeVar("T")

STEPS = 40
randoms = st.randoms(use_true_random=False)
several = settings(examples(20, of=40), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


@given(randoms)
def test_a_good_history_has_no_violation(rng: random.Random) -> None:
    assert violations(GoodCluster(rng, STEPS).history) == []


def visible(history: History) -> list[tuple[Place, int, int, Send]]:
    """Return for each visible record its partition, its index in the final content, its offset, and the send that wrote
    it.
    """
    sends = history.sends_by_value()
    return [
        (place, index, offset, sends[value])
        for place, records in history.final.items()
        for index, (offset, value) in enumerate(records)
    ]


def choose(rng: random.Random, items: list[T]) -> T:
    assume(items)
    return rng.choice(items)


def lose(history: History, rng: random.Random) -> None:
    kept = [each for each in visible(history) if each[3].transaction is None]
    place, index, _, _ = choose(rng, [each for each in kept if each[3].outcome is Outcome.ACKNOWLEDGED])
    del history.final[place][index]


def write_twice(history: History, rng: random.Random) -> None:
    place, _, _, send = choose(rng, visible(history))
    history.final[place].append((10_000, send.value))


def move(history: History, rng: random.Random) -> None:
    _, _, offset, send = choose(rng, visible(history))
    history.acknowledged(send, offset + 1)


def invent(history: History, rng: random.Random) -> None:
    history.final[choose(rng, list(history.final))].append((10_000, b"nobody/1"))


def show_aborted(history: History, rng: random.Random) -> None:
    shown = [send.transaction for *_, send in visible(history) if send.transaction is not None]
    choose(rng, shown).end = End.ABORTED


def tear(history: History, rng: random.Random) -> None:
    shown = [each for each in visible(history) if each[3].transaction is not None]
    owners = [each[3].transaction for each in shown]
    place, index, _, _ = choose(rng, [each for each in shown if owners.count(each[3].transaction) > 1])
    del history.final[place][index]


def swap(history: History, rng: random.Random) -> None:
    pairs = [
        (place, index, other)
        for place, index, _, send in visible(history)
        for where, other, _, later in visible(history)
        if where == place and index < other and later.producer == send.producer
    ]
    place, index, other = choose(rng, pairs)
    records = history.final[place]
    (one, first), (two, second) = records[index], records[other]
    records[index], records[other] = (one, second), (two, first)


def skip(history: History, rng: random.Random) -> None:
    reading = choose(rng, [each for each in history.readings if each.is_committed and len(each.records) > 2])
    del reading.records[rng.randrange(1, len(reading.records) - 1)]


def read_again(history: History, rng: random.Random) -> None:
    reading = choose(rng, [each for each in history.readings if each.records])
    reading.records.append(rng.choice(reading.records))


def process_twice(history: History, rng: random.Random) -> None:
    shown = [send for *_, send in visible(history) if send.made_of is not None]
    one = choose(rng, shown)
    other = choose(rng, [send for send in shown if send is not one])
    other.made_of = one.made_of


def leave_out(history: History, rng: random.Random) -> None:
    (group, place), end = choose(rng, list(history.processed.items()))
    history.finally_processed(group, place, end + 1)
    assume(end < len(history.final[place]))


def forget_offset(history: History, rng: random.Random) -> None:
    for place in history.final:
        forget_resets(history, place)
    sure = [
        commit for commit in history.commits if commit.transaction is None and commit.outcome is Outcome.ACKNOWLEDGED
    ]
    commit = choose(rng, sure)
    history.offset_read(commit.group, commit.place, commit.offset - 1, asked=history.now())


def forget_resets(history: History, place: Place) -> None:
    """Remove the resets from the history, because a reset would explain the seeded violation."""
    history.commits = [commit for commit in history.commits if commit.place != place or not commit.is_reset]


def one_with_an_offset(history: History, rng: random.Random) -> tuple[Commit, list[Send]]:
    """Choose a committed transaction that stored an offset; return that offset and the transaction's records."""
    shown = {send.transaction for *_, send in visible(history)} - {None}
    commit = choose(rng, [each for each in history.commits if each.transaction in shown])
    forget_resets(history, commit.place)
    return commit, [send for send in history.sends if send.transaction is commit.transaction]


def tear_offset_off(history: History, rng: random.Random) -> None:
    commit, _ = one_with_an_offset(history, rng)
    history.commits = [each for each in history.commits if each.place != commit.place or each.asked <= commit.asked]
    history.offset_reads = [read for read in history.offset_reads if read.place != commit.place]
    history.offset_read(commit.group, commit.place, NOT_YET, asked=history.now())


def tear_records_off(history: History, rng: random.Random) -> None:
    commit, sends = one_with_an_offset(history, rng)
    values = {send.value for send in sends}
    for place, records in history.final.items():
        history.final[place] = [each for each in records if each[1] not in values]
    history.offset_read(commit.group, commit.place, commit.offset, asked=history.now())


def invent_offset(history: History, rng: random.Random) -> None:
    commit = choose(rng, history.commits)
    history.offset_read(commit.group, commit.place, 10_000, asked=history.now())


def spoil_replica(history: History, rng: random.Random) -> None:
    logs = [
        (number, log)
        for number, log in enumerate(history.replicas)
        if any(
            log.start < min(log.high_watermark, other.high_watermark) > max(log.start, other.start)
            for other in history.replicas
            if other is not log and other.place == log.place
        )
    ]
    number, log = choose(rng, logs)
    spoilt = [batch._replace(content=b"something else") for batch in log.batches]
    history.replicas[number] = replace(log, batches=tuple(spoilt))


def lead_too(history: History, rng: random.Random) -> None:
    led = choose(rng, sorted(history.leaders))
    history.led(led.place, led.epoch, led.broker % 3 + 1)


FAULTS: list[tuple[Kind, Callable[[History, random.Random], None]]] = [
    (Kind.LOST, lose),
    (Kind.TWICE, write_twice),
    (Kind.MOVED, move),
    (Kind.INVENTED, invent),
    (Kind.ABORTED, show_aborted),
    (Kind.TORN, tear),
    (Kind.TORN, tear_offset_off),
    (Kind.TORN, tear_records_off),
    (Kind.DISORDER, swap),
    (Kind.SKIPPED, skip),
    (Kind.READ_BACK, read_again),
    (Kind.PROCESSED_TWICE, process_twice),
    (Kind.NOT_PROCESSED, leave_out),
    (Kind.OFFSET_BACK, forget_offset),
    (Kind.OFFSET_INVENTED, invent_offset),
    (Kind.REPLICAS_DIFFER, spoil_replica),
    (Kind.TWO_LEADERS, lead_too),
]


SHARED = {Kind.DELIVERED_AGAIN, Kind.DELIVERED_TOO_OFTEN, Kind.PASSED_OVER}
"""Violations of share groups, which no good history here has; `tests/unit/testing/test_share_history.py` tries each."""


def test_every_kind_of_violation_is_tried() -> None:
    assert {kind for kind, _ in FAULTS} | SHARED == set(Kind)


@pytest.mark.parametrize(("kind", "fault"), FAULTS, ids=[fault.__name__ for _, fault in FAULTS])
@several
@given(rng=randoms)
def test_an_injected_violation_is_found(
    kind: Kind, fault: Callable[[History, random.Random], None], rng: random.Random
) -> None:
    history = GoodCluster(rng, STEPS).history
    fault(history, rng)
    assert kind in {violation.kind for violation in violations(history)}
