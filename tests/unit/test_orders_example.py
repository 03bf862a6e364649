"""Tests which records examples/orders accepts as orders, and which faults the example's judge (checker) finds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from examples.orders.judge import Expected, Record, Verdict, expected, judge
from examples.orders.order import (
    AVRO,
    CUSTOMERS_FILE,
    DEAD_LETTERS,
    FORMATS,
    JSON,
    NEGATIVE,
    NO_ORDER,
    NO_VALUE,
    OFFSET,
    PARTITION,
    REASON,
    REVENUE,
    TOPIC,
    Order,
    encoded,
    read_customers,
    read_order,
)
from examples.orders.send import BEGIN, BROKEN_EVERY, order, records

ORDERS, LATE = 600, 3


def sent(form: str = JSON) -> list[Record]:
    ends = [0, 0]
    found = []
    for partition, key, value in records(0, ORDERS, LATE, form):
        found.append(Record("orders", partition, ends[partition], key, value, (("format", form.encode()),)))
        ends[partition] += 1
    return found


def known(form: str = JSON) -> Expected:
    if form == AVRO:
        pytest.importorskip("fastavro")
    return expected(sent(form), read_customers(CUSTOMERS_FILE), form)


def results(known: Expected) -> list[Record]:
    """Return result records in the form in which the example's pipeline writes results."""
    found = []
    for window, (orders, cents) in known.windows.items():
        start = datetime.fromtimestamp(window.start, UTC).isoformat()
        value = {"from": start, "country": window.country, "orders": orders, "cents": cents}
        found.append(Record(REVENUE, 0, len(found), b"", json.dumps(value).encode()))
    return found


def letters(known: Expected) -> list[Record]:
    found = []
    for (topic, partition, offset), (record, reason) in known.dead.items():
        own = {REASON: reason, TOPIC: topic, PARTITION: str(partition), OFFSET: str(offset)}
        headers = (*record.headers, *((name, text.encode()) for name, text in own.items()))
        found.append(Record(DEAD_LETTERS, 0, len(found), record.key, record.value, headers))
    return found


def verdict(revenue: Iterable[Record], dead_letters: Iterable[Record]) -> Verdict:
    return judge(known(), revenue, dead_letters)


@pytest.mark.parametrize("form", FORMATS)
def test_the_example_sends_orders_and_three_kinds_of_mistakes(form: str) -> None:
    found = known(form)
    assert found.orders == ORDERS - ORDERS // BROKEN_EVERY
    assert found.late == LATE
    assert {reason for _, reason in found.dead.values()} == {NO_VALUE, NO_ORDER, NEGATIVE}
    assert sum(orders for orders, _ in found.windows.values()) <= found.orders


@pytest.mark.parametrize("form", FORMATS)
def test_an_order_is_read_back(form: str) -> None:
    if form == AVRO:
        pytest.importorskip("fastavro")
    assert read_order(encoded(order(17), form), form) == Order("o-17", "c3", 729, BEGIN.replace(second=17))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, NO_VALUE),
        (b"", NO_ORDER),
        (b"\xff\xfe", NO_ORDER),
        (b"[1]", NO_ORDER),
        (b'{"order": "o", "customer": "c", "at": "2026-11-26T08:00:00Z"}', NO_ORDER),
        (b'{"order": "o", "customer": "c", "cents": "7", "at": "2026-11-26T08:00:00Z"}', NO_ORDER),
        (b'{"order": "o", "customer": "c", "cents": 7, "at": "soon"}', NO_ORDER),
        (b'{"order": "o", "customer": "c", "cents": -7, "at": "2026-11-26T08:00:00Z"}', NEGATIVE),
    ],
)
def test_a_malformed_order_is_refused(value: bytes | None, reason: str) -> None:
    assert read_order(value, JSON) == reason


def test_windows_are_closed_two_minutes_after_their_end() -> None:
    starts = {window.start for window in known().windows}
    newest = int(BEGIN.timestamp()) + ORDERS - 2  # the last record is no order
    assert max(starts) + 60 <= newest - 120 < max(starts) + 120
    assert len(starts) == 7


def test_a_correct_pipeline_passes() -> None:
    found = verdict(results(known()), letters(known()))
    assert found == Verdict()


def test_absent_rows_are_missing_and_not_wrong() -> None:
    found = verdict(results(known())[1:], letters(known())[1:])
    assert (len(found.missing), found.wrong) == (2, [])


def test_duplicated_rows_are_wrong() -> None:
    revenue, dead = results(known()), letters(known())
    found = verdict([*revenue, revenue[3]], [*dead, dead[2]])
    assert found.missing == []
    assert len(found.wrong) == 2
    assert all("2 times" in each or "2 dead letters" in each for each in found.wrong)


def test_a_different_sum_is_wrong() -> None:
    revenue = results(known())
    value = json.loads(revenue[0].value or b"")
    revenue[0] = revenue[0]._replace(value=json.dumps(value | {"cents": value["cents"] + 1}).encode())
    assert len(verdict(revenue, letters(known())).wrong) == 1


def test_a_window_that_is_not_closed_is_wrong() -> None:
    value = {"from": "2026-11-26T08:09:00Z", "country": "DE", "orders": 1, "cents": 1}
    extra = Record(REVENUE, 0, 0, b"", json.dumps(value).encode())
    assert len(verdict([*results(known()), extra], letters(known())).wrong) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda letter: letter._replace(value=b"other"),
        lambda letter: letter._replace(headers=letter.headers[1:]),
        lambda letter: letter._replace(headers=[(n, b"why" if n == REASON else v) for n, v in letter.headers]),
        lambda letter: letter._replace(headers=[(n, b"7" if n == OFFSET else v) for n, v in letter.headers]),
    ],
)
def test_a_dead_letter_that_differs_is_wrong(change) -> None:  # type: ignore[no-untyped-def]
    dead = letters(known())
    dead[1] = change(dead[1])
    assert len(verdict(results(known()), dead).wrong) == 1


def test_a_customer_who_is_there_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "customers.csv"
    file.write_text("customer,country\nc0,DE\nc1,FR\nc0,IT\n")
    with pytest.raises(ValueError, match=r"customers\.csv: c0 is there more than once"):
        read_customers(file)
