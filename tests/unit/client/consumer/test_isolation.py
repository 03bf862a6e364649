from oncelog.consumer.isolation import AbortedTransaction, AbortedTransactions
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.control import ControlType, EndTransactionMarker, marker_batch
from oncelog_protocol.records.record import Record

BATCH_RECORDS = 2


def data(offset: int, producer_id: int, *, transactional: bool = True) -> RecordBatch:
    records = [Record(0, 0, None, b"v", [])] * BATCH_RECORDS
    batch = build_batch(records, producer_id=producer_id, transactional=transactional, base_offset=offset)
    return RecordBatch(batch)


def marker(offset: int, producer_id: int, kind: ControlType) -> RecordBatch:
    end = EndTransactionMarker(kind, 0)
    return RecordBatch(marker_batch(end, producer_id=producer_id, producer_epoch=0, timestamp=0, base_offset=offset))


def seen(aborted: list[tuple[int, int]], batches: list[RecordBatch]) -> list[int]:
    transactions = [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted]
    hidden = AbortedTransactions(transactions)
    return [batch.base_offset for batch in batches if not hidden.next_is_aborted(batch)]


def test_s53_aborted_batches_and_all_markers_are_hidden() -> None:
    log = [data(0, 1), data(2, 2), marker(4, 1, ControlType.ABORT), data(5, 2), marker(7, 2, ControlType.COMMIT)]
    assert seen([(1, 0)], log) == [2, 5]


def test_s53_records_written_after_an_abort_belong_to_another_transaction() -> None:
    log = [data(0, 1), marker(2, 1, ControlType.ABORT), data(3, 1), marker(5, 1, ControlType.COMMIT), data(6, 1)]
    assert seen([(1, 0)], log) == [3, 6]


def test_s53_a_producer_may_abort_twice_and_the_list_has_no_order() -> None:
    log = [data(0, 1), marker(2, 1, ControlType.ABORT), data(3, 1), marker(5, 1, ControlType.ABORT), data(6, 1)]
    assert seen([(1, 3), (1, 0)], log) == [6]


def test_s53_a_fetch_may_begin_in_the_middle_of_an_aborted_transaction() -> None:
    assert seen([(1, 0)], [data(10, 1), data(12, 2), marker(14, 1, ControlType.ABORT)]) == [12]


def test_s53_records_outside_transactions_are_never_hidden() -> None:
    assert seen([(1, 0)], [data(0, 1, transactional=False), data(2, -1, transactional=False)]) == [0, 2]
