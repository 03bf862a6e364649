"""Open transactions are combined from the responses of coordinators, logs and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from unittest.mock import Mock

from oncelog import TopicPartition
from oncelog.admin import Explanation, Hang, HangingTransaction
from oncelog.admin.hanging import DescribedTransaction, OpenTransaction, ProducerState, TransactionLimits
from oncelog.errors import ErrorCode, KafkaError, PartialFailure
from oncelog_console.lookups.transactions import combined, explanations

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 3)
BEGAN_MS = 1_000_000


def held(producer: int, *partitions: TopicPartition, state: str = "Ongoing") -> DescribedTransaction:
    began = BEGAN_MS if state != "CompleteCommit" else None
    return DescribedTransaction(f"txn-{producer}", state, producer, 0, 60_000, began, frozenset(partitions), 1)


def opened(where: TopicPartition, producer: int, start: int, known: DescribedTransaction | None) -> OpenTransaction:
    return OpenTransaction(where, ProducerState(producer, 0, 5, BEGAN_MS - 500, 0, start), start, known)


def explained(
    where: TopicPartition, stable: int, pinned: OpenTransaction | None, *later: OpenTransaction
) -> Explanation:
    return Explanation(where, stable, 100, pinned, None, None, BEGAN_MS - 900, later, TransactionLimits())


def nobody(_: TopicPartition) -> Mapping[str, int]:
    return {}


def test_a_transaction_pins_where_it_is_the_first_and_waits_where_it_is_not() -> None:
    first, second = held(1, ORDERS, BILLS), held(2, ORDERS)
    looks = combined(
        [first, second],
        [],
        {
            ORDERS: explained(ORDERS, 40, opened(ORDERS, 1, 40, first), opened(ORDERS, 2, 60, second)),
            BILLS: explained(BILLS, 100, None),
        },
        lambda where: {"reader": 40, "ahead": 90} if where == ORDERS else {},
    )
    one, two = looks
    assert [hold.partition for hold in one.holds] == [BILLS, ORDERS]
    bills, orders = one.holds
    assert (orders.pins, orders.held_back, orders.waiting) == (True, 60, ("reader",))
    assert (bills.pins, bills.open_here, bills.held_back) == (False, None, 0)
    assert [hold.pins for hold in two.holds] == [False]
    assert (one.waiting, two.waiting) == (("reader",), ())
    assert (one.since_ms, one.state, one.hangs) == (BEGAN_MS, "Ongoing", None)


def test_s120_a_transaction_without_timeout_waits_for_its_owner() -> None:
    prepared = replace(held(1, ORDERS), timeout_ms=2**31 - 1)
    (look,) = combined([prepared], [], {ORDERS: explained(ORDERS, 100, None)}, nobody)
    assert (look.hangs, look.ends_by_ms, look.since_ms) == (None, None, BEGAN_MS)
    (timed,) = combined([held(1, ORDERS)], [], {ORDERS: explained(ORDERS, 100, None)}, nobody)
    assert timed.ends_by_ms == BEGAN_MS + 60_000


def test_a_transaction_unknown_to_any_coordinator_is_shown_from_its_partition() -> None:
    lost = opened(ORDERS, 9, 40, None)
    (look,) = combined(
        [], [HangingTransaction(lost, Hang.UNKNOWN, False)], {ORDERS: explained(ORDERS, 40, lost)}, nobody
    )
    assert (look.transactional_id, look.producer_id, look.state) == (None, 9, "hangs: unknown")
    assert look.since_ms == BEGAN_MS - 900
    assert look.ends_by_ms is None
    assert look.held_back == 60


def test_a_transaction_ended_elsewhere_by_its_coordinator_is_shown_as_hanging() -> None:
    ended = held(1, state="CompleteCommit")
    left = opened(ORDERS, 1, 40, ended)
    (look,) = combined(
        [], [HangingTransaction(left, Hang.NOT_HELD, True)], {ORDERS: explained(ORDERS, 40, left)}, nobody
    )
    assert (look.transactional_id, look.hangs) == ("txn-1", Hang.NOT_HELD)
    assert [hold.partition for hold in look.holds] == [ORDERS]


def test_a_transaction_seen_open_once_is_not_yet_hanging() -> None:
    ended = held(1, state="CompleteCommit")
    (look,) = combined([], [], {ORDERS: explained(ORDERS, 40, opened(ORDERS, 1, 40, ended))}, nobody)
    assert look.hangs is None


def test_markers_are_missing_once_the_end_is_decided() -> None:
    (look,) = combined([held(1, ORDERS, BILLS, state="PrepareCommit")], [], {}, nobody)
    assert look.lacks_markers == (BILLS, ORDERS)
    (ongoing,) = combined([held(1, ORDERS)], [], {}, nobody)
    assert ongoing.lacks_markers == ()
    assert ongoing.ends_by_ms == BEGAN_MS + 60_000


def test_hanging_transactions_come_first_and_then_the_oldest() -> None:
    lost = opened(BILLS, 9, 4, None)
    looks = combined([held(3, ORDERS), held(2, ORDERS)], [HangingTransaction(lost, Hang.UNKNOWN, False)], {}, nobody)
    assert [look.producer_id for look in looks] == [9, 2, 3]


class Transactions:
    """The partition `bills` has no leader, so its state is unknown; the page shows the error and earlier results."""

    def __init__(self) -> None:
        self.asked: list[list[TopicPartition]] = []

    async def explain(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Explanation]:
        wanted = list(partitions)
        self.asked.append(wanted)
        if BILLS in wanted:
            error = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "bills-3 has no leader")
            raise PartialFailure({BILLS: error}, {ORDERS: "producers, and no explanation"})
        return {where: explained(where, 100, None) for where in wanted}


async def test_a_partition_without_a_leader_takes_no_explanation_from_the_others() -> None:
    admin = Mock(transactions=Transactions())
    missing: dict[str, str] = {}
    told = await explanations(admin, [BILLS, ORDERS], missing)
    assert told == {ORDERS: explained(ORDERS, 100, None)}
    assert missing == {"explanations": "bills-3 has no leader"}
    assert admin.transactions.asked == [[BILLS, ORDERS], [ORDERS]]
