"""The history checker finds each kind of violation, seeded into the smallest history that can have it."""

from __future__ import annotations

import pytest

from oncelog_testing.history.checker import check, violations
from oncelog_testing.history.events import Commit, End, Outcome, Place, ReplicaLog, Send, StoredBatch, Transaction
from oncelog_testing.history.recorder import History
from oncelog_testing.history.violation import Kind

HERE, THERE = Place("topic", 0), Place("topic", 1)


@pytest.fixture
def history() -> History:
    return History()


def kinds(history: History) -> list[Kind]:
    return [violation.kind for violation in violations(history)]


def acknowledged(history: History, value: bytes, offset: int, transaction: Transaction | None = None) -> Send:
    send = history.send("anna", HERE, value, transaction)
    history.acknowledged(send, offset)
    return send


def ended(history: History, end: End) -> Transaction:
    transaction = history.transaction("anna")
    history.ended(transaction, end)
    return transaction


def test_a_lost_acknowledged_record_is_found(history: History) -> None:
    acknowledged(history, b"1", 0)
    history.finally_holds(HERE, [])
    assert kinds(history) == [Kind.LOST]


def test_a_record_of_unknown_fate_may_be_lost_or_present(history: History) -> None:
    history.send("anna", HERE, b"1")
    history.send("anna", HERE, b"2")
    history.finally_holds(HERE, [(0, b"2")])
    assert kinds(history) == []


def test_a_duplicated_record_is_found(history: History) -> None:
    acknowledged(history, b"1", 0)
    history.finally_holds(HERE, [(0, b"1"), (1, b"1")])
    assert kinds(history) == [Kind.TWICE]


def test_a_record_at_another_place_than_acknowledged_is_found(history: History) -> None:
    acknowledged(history, b"1", 0)
    history.finally_holds(HERE, [(1, b"1")])
    assert kinds(history) == [Kind.MOVED]


@pytest.mark.parametrize("partition", [HERE, THERE], ids=["failed", "in another partition"])
def test_an_impossible_record_is_found(history: History, partition: Place) -> None:
    send = history.send("anna", HERE, b"1")
    if partition == HERE:
        history.failed(send)
    history.finally_holds(partition, [(0, b"1")])
    assert kinds(history) == [Kind.INVENTED]


def test_a_record_that_no_producer_sent_is_found(history: History) -> None:
    history.finally_holds(HERE, [(0, b"1")])
    assert kinds(history) == [Kind.INVENTED]


def test_a_read_record_of_an_aborted_transaction_is_found(history: History) -> None:
    acknowledged(history, b"1", 0, ended(history, End.ABORTED))
    history.finally_holds(HERE, [])
    history.reading("any", HERE, is_committed=False).records.append((0, b"1"))
    assert kinds(history) == []
    history.reading("ours", HERE).records.append((0, b"1"))
    assert Kind.ABORTED in kinds(history)


def test_a_remaining_record_of_an_aborted_transaction_is_found(history: History) -> None:
    acknowledged(history, b"1", 0, ended(history, End.ABORTED))
    history.finally_holds(HERE, [(0, b"1")])
    assert kinds(history) == [Kind.ABORTED]


@pytest.mark.parametrize("end", [End.COMMITTED, End.UNKNOWN])
def test_a_torn_transaction_is_found(history: History, end: End) -> None:
    transaction = ended(history, end)
    acknowledged(history, b"1", 0, transaction)
    acknowledged(history, b"2", 1, transaction)
    history.finally_holds(HERE, [(0, b"1")])
    assert kinds(history) == [Kind.TORN]


def test_a_wholly_lost_committed_transaction_is_found(history: History) -> None:
    acknowledged(history, b"1", 0, ended(history, End.COMMITTED))
    history.finally_holds(HERE, [])
    assert kinds(history) == [Kind.LOST]


def test_a_transaction_of_unknown_end_may_be_lost_as_a_whole(history: History) -> None:
    acknowledged(history, b"1", 0, ended(history, End.UNKNOWN))
    history.finally_holds(HERE, [])
    assert kinds(history) == []


def test_reordered_records_of_a_producer_are_found(history: History) -> None:
    history.send("anna", HERE, b"1")
    history.send("anna", HERE, b"2")
    history.finally_holds(HERE, [(0, b"2"), (1, b"1")])
    assert kinds(history) == [Kind.DISORDER]


def test_records_of_two_producers_may_have_any_order(history: History) -> None:
    history.send("anna", HERE, b"1")
    history.send("berta", HERE, b"2")
    history.finally_holds(HERE, [(0, b"2"), (1, b"1")])
    assert kinds(history) == []


def test_a_wrong_record_given_to_a_consumer_is_found(history: History) -> None:
    acknowledged(history, b"1", 0)
    acknowledged(history, b"2", 1)
    history.finally_holds(HERE, [(0, b"1"), (1, b"2")])
    history.reading("ours", HERE).records.append((0, b"2"))
    assert kinds(history) == [Kind.MOVED]


def test_a_record_missed_by_a_consumer_is_found(history: History) -> None:
    for offset in range(3):
        acknowledged(history, b"%d" % offset, offset)
    history.finally_holds(HERE, [(offset, b"%d" % offset) for offset in range(3)])
    history.reading("ours", HERE).records += [(0, b"0"), (2, b"2")]
    assert kinds(history) == [Kind.SKIPPED]


def test_a_record_given_again_to_a_consumer_is_found(history: History) -> None:
    acknowledged(history, b"1", 0)
    history.reading("ours", HERE).records += [(0, b"1"), (0, b"1")]
    assert kinds(history) == [Kind.READ_BACK]


def copied(history: History, number: int, end: End = End.COMMITTED) -> None:
    """Add a second copy of the first line to the history."""
    send = acknowledged(history, b"copy %d" % number, number, ended(history, end))
    history.derived(send, "group", THERE, 0)


def test_an_input_processed_twice_is_found(history: History) -> None:
    history.send("anna", THERE, b"line")
    history.finally_holds(THERE, [(0, b"line")])
    copied(history, 0, End.ABORTED)
    copied(history, 1)
    history.finally_holds(HERE, [(1, b"copy 1")])
    assert kinds(history) == []
    copied(history, 2, End.UNKNOWN)
    history.finally_holds(HERE, [(1, b"copy 1"), (2, b"copy 2")])
    assert kinds(history) == [Kind.PROCESSED_TWICE]


def test_a_skipped_input_is_found(history: History) -> None:
    history.send("anna", THERE, b"line")
    history.finally_holds(THERE, [(0, b"line")])
    history.finally_processed("group", THERE, 0)
    assert kinds(history) == []
    history.finally_processed("group", THERE, 1)
    assert kinds(history) == [Kind.NOT_PROCESSED]


def test_a_committed_offset_that_went_back_is_found(history: History) -> None:
    history.commit_answered(history.commit("group", HERE, 5))
    history.offset_read("group", HERE, 5, asked=history.now())
    assert kinds(history) == []
    history.offset_read("group", HERE, -1, asked=history.now())
    assert kinds(history) == [Kind.OFFSET_BACK]


def committed(history: History, offset: int, transaction: Transaction | None = None, place: Place = HERE) -> Commit:
    commit = history.commit("group", place, offset, transaction)
    history.commit_answered(commit)
    return commit


def asks(history: History, answer: int, place: Place = HERE) -> None:
    history.offset_read("group", place, answer, asked=history.now())


def copies(history: History, end: End, offset: int = 5) -> Transaction:
    """Add a transaction with a record and with the offset up to which it has processed the input."""
    transaction = history.transaction("anna")
    acknowledged(history, b"1", 0, transaction)
    committed(history, offset, transaction, THERE)
    history.ended(transaction, end)
    return transaction


@pytest.mark.parametrize("before", [-1, 3])
@pytest.mark.parametrize("end", [End.COMMITTED, End.UNKNOWN])
def test_a_missing_offset_of_a_transaction_is_found(history: History, end: End, before: int) -> None:
    """The transaction's output exists, so the next member would process the same inputs again."""
    if before > 0:
        committed(history, before, place=THERE)
    copies(history, end)
    history.finally_holds(HERE, [(0, b"1")])
    asks(history, before, THERE)
    assert Kind.TORN in kinds(history)
    (torn,) = (found for found in violations(history) if found.kind is Kind.TORN)
    assert torn.what == f"transaction 0 of anna ({end.value}): offset 5 of group in topic-1 missing"


@pytest.mark.parametrize("end", [End.COMMITTED, End.UNKNOWN])
def test_an_offset_without_the_record_of_its_transaction_is_found(history: History, end: End) -> None:
    """The transaction's inputs are never processed again."""
    copies(history, end)
    history.finally_holds(HERE, [])
    asks(history, 5, THERE)
    assert kinds(history) == [Kind.TORN]


@pytest.mark.parametrize("end", [End.COMMITTED, End.UNKNOWN])
def test_the_position_of_a_group_reveals_missing_offsets(history: History, end: End) -> None:
    copies(history, end)
    history.finally_holds(HERE, [(0, b"1")])
    history.finally_processed("group", THERE, 0)
    assert kinds(history) == [Kind.TORN]


@pytest.mark.parametrize("end", [End.COMMITTED, End.UNKNOWN])
def test_one_missing_offset_of_two_in_a_transaction_is_found(history: History, end: End) -> None:
    transaction = history.transaction("anna")
    committed(history, 5, transaction, HERE)
    committed(history, 7, transaction, THERE)
    history.ended(transaction, end)
    asks(history, 5, HERE)
    asks(history, -1, THERE)
    assert Kind.TORN in kinds(history)


@pytest.mark.parametrize("end", [End.COMMITTED, End.UNKNOWN])
def test_the_last_offset_of_a_transaction_in_a_partition_counts(history: History, end: End) -> None:
    transaction = history.transaction("anna")
    acknowledged(history, b"1", 0, transaction)
    committed(history, 5, transaction, THERE)
    committed(history, 6, transaction, THERE)
    history.ended(transaction, end)
    history.finally_holds(HERE, [(0, b"1")])
    asks(history, 6, THERE)
    assert kinds(history) == []


@pytest.mark.parametrize("end", [End.COMMITTED, End.UNKNOWN])
@pytest.mark.parametrize("answer", [5, 8])
def test_an_offset_that_is_there_or_that_a_later_transaction_has_passed_is_not_missing(
    history: History, end: End, answer: int
) -> None:
    copies(history, end)
    later = history.transaction("berta")
    committed(history, 8, later, THERE)
    history.ended(later, End.COMMITTED if answer == 8 else End.ABORTED)
    history.finally_holds(HERE, [(0, b"1")])
    asks(history, answer, THERE)
    assert kinds(history) == []


@pytest.mark.parametrize("end", [End.COMMITTED, End.UNKNOWN])
@pytest.mark.parametrize("offset", [-1, 2])
@pytest.mark.parametrize("is_answered", [True, False])
def test_an_offset_is_not_missing_where_the_group_was_reset(
    history: History, end: End, offset: int, is_answered: bool
) -> None:
    committed(history, 3, place=THERE)
    copies(history, end)
    history.finally_holds(HERE, [(0, b"1")])
    reset = history.reset("group", THERE, offset)
    if is_answered:
        history.commit_answered(reset)
    asks(history, offset, THERE)
    assert kinds(history) == []
    committed(history, 4, place=THERE)
    asks(history, 4, THERE)
    assert kinds(history) == []


def test_a_reset_before_a_transaction_does_not_excuse_that_its_offset_is_missing(history: History) -> None:
    history.commit_answered(history.reset("group", THERE, 2))
    copies(history, End.UNKNOWN)
    history.finally_holds(HERE, [(0, b"1")])
    asks(history, 2, THERE)
    assert kinds(history) == [Kind.TORN]


def test_offsets_advance_again_after_a_reset(history: History) -> None:
    committed(history, 5)
    history.commit_answered(history.reset("group", HERE, 2))
    committed(history, 3)
    assert kinds(history) == []
    asks(history, 2)
    assert kinds(history) == [Kind.OFFSET_BACK]


def test_a_read_before_the_end_of_a_transaction_proves_nothing(history: History) -> None:
    """The transaction may end, and its output may appear, after the read."""
    copies(history, End.UNKNOWN)
    asks(history, -1, THERE)
    history.finally_holds(HERE, [(0, b"1")])
    assert kinds(history) == []


def test_an_offset_that_was_there_and_is_not_any_more_is_not_torn_off_but_went_back(history: History) -> None:
    copies(history, End.COMMITTED)
    history.finally_holds(HERE, [(0, b"1")])
    asks(history, 5, THERE)
    asks(history, -1, THERE)
    assert kinds(history) == [Kind.OFFSET_BACK]


@pytest.mark.parametrize("is_aborted", [True, False])
def test_an_uncommitted_transaction_may_leave_neither_record_nor_offset(history: History, is_aborted: bool) -> None:
    copies(history, End.ABORTED if is_aborted else End.UNKNOWN)
    history.finally_holds(HERE, [])
    asks(history, -1, THERE)
    assert kinds(history) == []


def test_an_offset_whose_commit_was_not_answered_may_be_missing_where_the_end_is_unknown(history: History) -> None:
    transaction = history.transaction("anna")
    acknowledged(history, b"1", 0, transaction)
    history.commit("group", THERE, 5, transaction)
    history.finally_holds(HERE, [(0, b"1")])
    asks(history, -1, THERE)
    assert kinds(history) == []
    history.ended(transaction, End.COMMITTED)
    asks(history, -1, THERE)
    assert kinds(history) == [Kind.TORN], "a producer commits only what it was acknowledged"


def test_an_offset_that_others_may_have_committed_proves_nothing(history: History) -> None:
    copies(history, End.UNKNOWN)
    committed(history, 5, place=THERE)
    history.finally_holds(HERE, [])
    asks(history, 5, THERE)
    assert kinds(history) == []


def test_an_offset_committed_by_a_zombie_is_found(history: History) -> None:
    history.commit_answered(history.commit("group", HERE, 5))
    history.commit_answered(history.commit("group", HERE, 4))
    assert kinds(history) == [Kind.OFFSET_BACK]


def test_an_offset_committed_meanwhile_may_be_read_or_not(history: History) -> None:
    asked = history.now()
    history.commit_answered(history.commit("group", HERE, 5))
    history.offset_read("group", HERE, -1, asked=asked)
    history.offset_read("group", HERE, 5, asked=asked)
    assert kinds(history) == []


def test_an_offset_of_an_aborted_transaction_is_found(history: History) -> None:
    commit = history.commit("group", HERE, 5, ended(history, End.ABORTED))
    history.commit_answered(commit)
    history.offset_read("group", HERE, 5, asked=history.now())
    assert kinds(history) == [Kind.ABORTED]


@pytest.mark.parametrize("refused", [False, True])
def test_an_offset_that_was_never_committed_is_found(history: History, refused: bool) -> None:
    if refused:
        history.commit_answered(history.commit("group", HERE, 5), Outcome.FAILED)
    history.offset_read("group", HERE, 5, asked=history.now())
    assert kinds(history) == [Kind.OFFSET_INVENTED]


def replica(broker: int, *contents: bytes, high_watermark: int) -> ReplicaLog:
    batches = [StoredBatch(offset, offset + 1, content) for offset, content in enumerate(contents)]
    return ReplicaLog(broker, HERE, high_watermark, tuple(batches))


def test_replicas_that_differ_below_the_high_watermark_are_found(history: History) -> None:
    history.replica(replica(1, b"1", b"2", high_watermark=1))
    history.replica(replica(2, b"1", b"3", b"4", high_watermark=3))
    assert kinds(history) == []
    history.replica(replica(3, b"2", high_watermark=1))
    assert set(kinds(history)) == {Kind.REPLICAS_DIFFER}


def test_a_replica_that_ends_below_its_high_watermark_is_found(history: History) -> None:
    history.replica(replica(1, b"1", high_watermark=2))
    assert kinds(history) == [Kind.REPLICAS_DIFFER]


def test_two_leaders_in_one_epoch_are_found(history: History) -> None:
    history.led(HERE, 3, 1)
    history.led(HERE, 4, 2)
    history.led(THERE, 3, 2)
    assert kinds(history) == []
    history.led(HERE, 3, 2)
    assert kinds(history) == [Kind.TWO_LEADERS]


def test_check_says_what_is_wrong_and_leaves_out_what_is_expected(history: History) -> None:
    acknowledged(history, b"1", 0)
    history.finally_holds(HERE, [])
    check(history, apart_from=[Kind.LOST])
    with pytest.raises(AssertionError, match=r"(?s)LOST.*b'1' of anna"):
        check(history)
