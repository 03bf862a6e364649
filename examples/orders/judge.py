"""Computes without Spark what the pipeline must have written, and compares it with the actual records. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from examples.orders.order import (
    LATE_PREFIX,
    LATENESS_SECONDS,
    OFFSET,
    PARTITION,
    REASON,
    TOPIC,
    UNKNOWN_COUNTRY,
    WINDOW_SECONDS,
    read_order,
)


class Record(NamedTuple):
    """A record that a read_committed consumer has read."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Window(NamedTuple):
    """A time window of one country, for which the pipeline must write one result. `start` is in seconds since 1970."""

    start: int
    country: str


@dataclass(frozen=True)
class Expected:
    """The expected results. `windows` maps each closed window to the number of orders and the sum of cents. `dead` maps
    topic, partition and offset of each record that is not an order to the record and the reason. `orders` is the number
    of orders that were in time, `late` the number of late orders.
    """

    windows: Mapping[Window, tuple[int, int]]
    dead: Mapping[tuple[str, int, int], tuple[Record, str]]
    orders: int
    late: int


@dataclass
class Verdict:
    """The problems that were found, one line of text for each. Results may be `missing` while the pipeline runs. A
    result is `wrong` if it is duplicated, has another sum, or belongs to an open window. This must never happen.
    """

    missing: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def expected(orders: Iterable[Record], customers: Mapping[str, str], form: str) -> Expected:
    sums: Counter[Window] = Counter()
    counts: Counter[Window] = Counter()
    dead: dict[tuple[str, int, int], tuple[Record, str]] = {}
    newest = 0.0
    number = late = 0
    for record in orders:
        order = read_order(record.value, form)
        if isinstance(order, str):
            dead[record.topic, record.partition, record.offset] = (record, order)
            continue
        if order.order.startswith(LATE_PREFIX):
            late += 1
            continue
        number += 1
        at = order.at.timestamp()
        newest = max(newest, at)
        window = Window(int(at // WINDOW_SECONDS) * WINDOW_SECONDS, customers.get(order.customer, UNKNOWN_COUNTRY))
        counts[window] += 1
        sums[window] += order.cents
    closed = newest - LATENESS_SECONDS
    windows = {each: (counts[each], sums[each]) for each in counts if each.start + WINDOW_SECONDS <= closed}
    return Expected(windows, dead, number, late)


def judge(expected: Expected, revenue: Iterable[Record], dead_letters: Iterable[Record]) -> Verdict:
    verdict = Verdict()
    _judge_windows(verdict, expected, revenue)
    _judge_dead_letters(verdict, expected, dead_letters)
    return verdict


def _judge_windows(verdict: Verdict, expected: Expected, revenue: Iterable[Record]) -> None:
    seen: Counter[Window] = Counter()
    for record in revenue:
        result: dict[str, Any] = json.loads(record.value or b"{}")
        window = Window(int(datetime.fromisoformat(result["from"]).timestamp()), result["country"])
        seen[window] += 1
        found = (result["orders"], result["cents"])
        if window not in expected.windows:
            verdict.wrong.append(f"{window}: nobody expects it, and it is there with {found}")
        elif found != expected.windows[window]:
            verdict.wrong.append(f"{window}: {expected.windows[window]} orders and cents, not {found}")
    verdict.wrong += [f"{window}: is there {times} times" for window, times in seen.items() if times > 1]
    verdict.missing += [f"{window}: is not there" for window in expected.windows if window not in seen]


def _judge_dead_letters(verdict: Verdict, expected: Expected, dead_letters: Iterable[Record]) -> None:
    seen: Counter[tuple[str, int, int]] = Counter()
    for letter in dead_letters:
        headers = {name: (value or b"").decode() for name, value in letter.headers}
        place = (headers[TOPIC], int(headers[PARTITION]), int(headers[OFFSET]))
        seen[place] += 1
        if place not in expected.dead:
            verdict.wrong.append(f"{place}: is not a dead letter")
            continue
        record, reason = expected.dead[place]
        if (letter.key, letter.value) != (record.key, record.value):
            verdict.wrong.append(f"{place}: its dead letter has another key or value")
        if headers[REASON] != reason:
            verdict.wrong.append(f"{place}: the reason is {reason!r}, not {headers[REASON]!r}")
        if not set(record.headers) <= set(letter.headers):
            verdict.wrong.append(f"{place}: its dead letter has not all of its headers")
    verdict.wrong += [f"{place}: has {times} dead letters" for place, times in seen.items() if times > 1]
    verdict.missing += [f"{place}: has no dead letter" for place in expected.dead if place not in seen]
