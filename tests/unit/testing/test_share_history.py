"""The check of share groups in a history: each rule notices when it is broken, and correct deliveries break none."""

from __future__ import annotations

import pytest

from oncelog_testing.history.checker import violations
from oncelog_testing.history.events import Delivery, Outcome, Place
from oncelog_testing.history.recorder import History
from oncelog_testing.history.violation import Kind

GROUP, PLACE, LIMIT = "group", Place("jobs"), 3


def kinds(history: History) -> list[Kind]:
    return [violation.kind for violation in violations(history)]


@pytest.fixture
def history() -> History:
    """A history with two records, of which a share group has accepted the first."""
    history = History()
    for offset in range(2):
        history.acknowledged(history.send("producer", PLACE, b"%d" % offset), offset)
    history.finally_holds(PLACE, [(0, b"0"), (1, b"1")])
    accept(history, deliver(history, 0))
    return history


def deliver(history: History, offset: int, member: str = "a", count: int = 1) -> Delivery:
    return history.delivered(GROUP, member, PLACE, offset, count)


def accept(history: History, delivery: Delivery, outcome: Outcome = Outcome.ACKNOWLEDGED) -> None:
    history.accepting(delivery)
    history.acceptance_answered(delivery, outcome)


def test_a_record_that_nobody_accepted_is_a_violation_when_the_group_has_finished(history: History) -> None:
    assert kinds(history) == []
    history.finally_shared(GROUP, PLACE, LIMIT)
    assert kinds(history) == [Kind.PASSED_OVER]
    deliver(history, 1)
    assert kinds(history) == [Kind.PASSED_OVER]
    accept(history, deliver(history, 1, "b", 2), Outcome.UNKNOWN)
    assert kinds(history) == []


def test_a_record_that_was_delivered_as_often_as_allowed_may_be_archived(history: History) -> None:
    history.finally_shared(GROUP, PLACE, LIMIT)
    deliver(history, 1, count=LIMIT)
    assert kinds(history) == []
    deliver(history, 1, count=LIMIT + 1)
    assert kinds(history) == [Kind.DELIVERED_TOO_OFTEN]


def test_a_record_may_come_again_until_its_acceptance_is_confirmed(history: History) -> None:
    elder = deliver(history, 1)
    history.accepting(elder)
    younger = deliver(history, 1, "b", 2)
    history.acceptance_answered(elder, Outcome.FAILED)
    accept(history, younger)
    assert kinds(history) == []
    deliver(history, 1, "c", 3)
    assert kinds(history) == [Kind.DELIVERED_AGAIN]


def test_a_record_that_two_members_have_accepted_is_a_violation(history: History) -> None:
    elder, younger = deliver(history, 1), deliver(history, 1, "b", 2)
    accept(history, elder)
    assert kinds(history) == []
    accept(history, younger)
    assert kinds(history) == [Kind.DELIVERED_AGAIN]
