"""A test records what an application did, and gets a verdict."""

from __future__ import annotations

import pytest

from oncelog_testing import application
from oncelog_testing.application import ApplicationHistory
from oncelog_testing.history.events import End, Place
from oncelog_testing.history.violation import Kind
from oncelog_testing.readers import Content

ORDERS, INVOICES = Place("orders"), Place("invoices")


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Content:
    """The records that exist at the end; a test adds them."""
    found: Content = {}
    monkeypatch.setattr(
        application,
        "content",
        lambda servers, topics: {place: records for place, records in found.items() if place.topic in topics},
    )
    return found


@pytest.fixture
def history() -> ApplicationHistory:
    return ApplicationHistory(lambda: "nowhere:9092")


def order_of(invoice: bytes) -> bytes | None:
    return invoice.removeprefix(b"invoice for ") if invoice.startswith(b"invoice for ") else None


def orders(*values: bytes) -> list[tuple[int, bytes]]:
    return list(enumerate(values))


def test_each_input_has_one_output(history: ApplicationHistory, there: Content) -> None:
    there[ORDERS] = orders(b"a", b"b")
    there[INVOICES] = [(0, b"invoice for a"), (3, b"invoice for b")]
    history.read_processed("orders", "invoices", order_of)
    assert history.verdict()
    assert str(history.verdict()).startswith("exactly once: 4 records sent")
    history.check()


@pytest.mark.parametrize(
    ("invoices", "kinds"),
    [
        ([(0, b"invoice for a")], {Kind.NOT_PROCESSED}),
        ([(0, b"invoice for a"), (1, b"invoice for b"), (2, b"invoice for b")], {Kind.TWICE}),
        ([(0, b"invoice for b"), (1, b"invoice for a")], {Kind.DISORDER}),
        ([(0, b"invoice for a"), (1, b"invoice for b"), (2, b"advertisement")], {Kind.INVENTED}),
        ([(0, b"invoice for a"), (1, b"invoice for b"), (2, b"invoice for c")], {Kind.INVENTED}),
    ],
)
def test_unexpected_outputs_are_named(
    history: ApplicationHistory, there: Content, invoices: list[tuple[int, bytes]], kinds: set[Kind]
) -> None:
    there[ORDERS], there[INVOICES] = orders(b"a", b"b"), invoices
    history.read_processed("orders", "invoices", order_of)
    assert history.verdict().kinds == kinds
    assert history.verdict(apart_from=kinds)
    with pytest.raises(AssertionError, match=kinds.pop().name):
        history.check()


def test_two_outputs_of_one_input_are_seen_though_they_differ(history: ApplicationHistory, there: Content) -> None:
    there[ORDERS] = orders(b"a")
    there[INVOICES] = orders(b"1 of a", b"2 of a")
    history.read_processed("orders", "invoices", lambda invoice: invoice[-1:])
    assert history.verdict().kinds == {Kind.PROCESSED_TWICE}


def test_one_output_in_two_partitions_is_there_twice(history: ApplicationHistory, there: Content) -> None:
    there[ORDERS] = orders(b"a")
    there[INVOICES] = there[Place("invoices", 1)] = orders(b"invoice for a")
    history.read_processed("orders", "invoices", order_of)
    assert history.verdict().kinds == {Kind.TWICE}


def test_only_committed_inputs_are_due(
    history: ApplicationHistory, there: Content, monkeypatch: pytest.MonkeyPatch
) -> None:
    there[ORDERS], there[INVOICES] = orders(b"a", b"b"), orders(b"invoice for a")
    monkeypatch.setattr(application, "committed_offsets", lambda servers, group: {("orders", 0): 1})
    history.read_processed("orders", "invoices", order_of, group_id="billing")
    history.check()


def test_a_history_may_be_checked_again(history: ApplicationHistory, there: Content) -> None:
    there[ORDERS], there[INVOICES] = orders(b"a"), []
    history.read_processed("orders", "invoices", order_of)
    assert history.verdict().kinds == {Kind.NOT_PROCESSED}
    there[INVOICES] = orders(b"invoice for a")
    history.read_processed("orders", "invoices", order_of)
    history.check()


def test_inputs_that_cannot_be_told_apart_are_refused(history: ApplicationHistory, there: Content) -> None:
    there[ORDERS], there[INVOICES] = orders(b"a", b"a"), []
    with pytest.raises(ValueError, match="b'a'"):
        history.read_processed("orders", "invoices", order_of)


def test_two_records_of_one_value_are_refused(history: ApplicationHistory) -> None:
    history.send("anna", "invoices", b"1")
    history.send("anna", "invoices", b"1")
    with pytest.raises(ValueError, match="value b'1'"):
        history.verdict()


def test_a_record_may_be_in_any_partition_of_its_topic(history: ApplicationHistory, there: Content) -> None:
    there[INVOICES], there[Place("invoices", 1)] = orders(b"1"), orders(b"2")
    for value in (b"1", b"2"):
        history.acknowledged(history.send("anna", "invoices", value))
    lost = history.send("anna", "invoices", b"3")
    history.read("invoices")
    history.check()
    history.acknowledged(lost)
    assert history.verdict().kinds == {Kind.LOST}


def test_a_record_is_where_it_was_acknowledged(history: ApplicationHistory, there: Content) -> None:
    there[INVOICES], there[Place("invoices", 1)] = orders(b"1"), []
    history.acknowledged(history.send("anna", "invoices", b"1"), 0, partition=1)
    history.read("invoices")
    assert history.verdict().kinds == {Kind.INVENTED, Kind.LOST}


def test_a_verdict_says_what_was_looked_at_and_what_is_wrong(history: ApplicationHistory, there: Content) -> None:
    transaction = history.transaction("billing")
    for number in range(13):
        history.acknowledged(history.send("anna", "invoices", b"lost %d" % number))
    for value in (b"1", b"2"):
        history.acknowledged(history.send("billing", "invoices", value, transaction))
    history.ended(transaction, End.COMMITTED)
    there[INVOICES] = [(0, b"1"), (2, b"1")]
    history.read("invoices")
    assert str(history.verdict()).splitlines() == [
        "not exactly once, 15 violations: 15 records sent, 1 transaction (1 committed, 0 aborted, 0 of unknown end), "
        "2 records found in 1 partition",
        "  TWICE: a record is duplicated (1)",
        "    b'1' in invoices-0 at 0 and 2",
        "  LOST: an acknowledged record is missing (13)",
        *(f"    b'lost {number}' of anna, acknowledged in invoices-0" for number in range(10)),
        "    ... and 3 more",
        "  TORN: a transaction is visible only in part (1)",
        "    transaction 0 of billing (committed): [b'2'] missing",
    ]
