from oncelog_broker.log.compaction.batch_retention import (
    ProducerBatches,
    TransactionScan,
)
from oncelog_broker.log.compaction.live_batches import MAX_TRACKED_BATCHES, LiveBatches
from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.control import ControlType, EndTransactionMarker, marker_batch
from oncelog_protocol.records.record import Record
from oncelog_protocol.records.rewrite import empty_batch

NOW = 1_700_000_000_000
EXPIRATION_MS = 86_400_000


def data(
    offset: int, producer_id: int = 1, *, epoch: int = 0, transactional: bool = True, at: int = NOW, count: int = 1
):
    records = [Record(0, at, b"k", b"v", [])] * count
    return RecordBatch(
        build_batch(
            records,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0 if producer_id >= 0 else -1,
            transactional=transactional,
        )
    )


def marker(offset: int, producer_id: int = 1, kind: ControlType = ControlType.COMMIT, *, epoch: int = 0) -> RecordBatch:
    made = EndTransactionMarker(kind, 0)
    return RecordBatch(
        marker_batch(made, producer_id=producer_id, producer_epoch=epoch, timestamp=NOW, base_offset=offset)
    )


class TestProducers:
    def last_of(self, *batches: RecordBatch, now_ms: int = NOW) -> list[int]:
        producers = ProducerBatches(now_ms, EXPIRATION_MS)
        for batch in batches:
            producers.note(batch)
        return [batch.base_offset for batch in batches if producers.is_last(batch)]

    def test_the_last_batch_of_each_producer_is_kept(self):
        assert self.last_of(data(0, 1), data(1, 2), data(2, 1), data(3, -1)) == [1, 2]

    def test_a_marker_of_the_same_epoch_leaves_the_sequence_where_it_was(self):
        assert self.last_of(data(0), marker(1)) == [0]

    def test_a_marker_of_a_later_epoch_is_all_that_is_known(self):
        assert self.last_of(data(0), marker(1, epoch=1)) == [1]

    def test_a_producer_that_was_silent_for_too_long_is_forgotten(self):
        batch = data(0)
        assert self.last_of(batch, now_ms=NOW + EXPIRATION_MS - 1) == [0]
        assert self.last_of(batch, now_ms=NOW + EXPIRATION_MS) == []


class TestTransactions:
    def test_a_marker_whose_data_was_met_is_needed(self):
        scan = TransactionScan()
        assert not scan.is_aborted(data(0))
        assert not scan.ends_empty_transaction(marker(1), ControlType.COMMIT)
        assert scan.ends_empty_transaction(marker(2), ControlType.COMMIT), "of the next transaction, without data"

    def test_aborted_data_is_recognised_and_its_marker_kept(self):
        scan = TransactionScan([EndedTransaction(1, 10, 12, 13)])
        assert not scan.is_aborted(data(5))
        assert not scan.ends_empty_transaction(marker(6), ControlType.COMMIT)
        assert scan.is_aborted(data(10))
        assert not scan.is_aborted(data(11, 2)), "another producer's"
        assert not scan.is_aborted(data(11, 1, transactional=False))
        assert not scan.ends_empty_transaction(marker(12, kind=ControlType.ABORT), ControlType.ABORT)
        assert not scan.is_aborted(data(13))

    def test_an_abort_marker_without_remaining_data_ends_an_empty_transaction(self):
        scan = TransactionScan([EndedTransaction(1, 10, 12, 13)])
        assert scan.ends_empty_transaction(marker(12, kind=ControlType.ABORT), ControlType.ABORT)

    def test_an_abort_marker_stays_while_data_of_its_producer_is_there_though_no_index_says_aborted(self):
        scan = TransactionScan()
        scan.is_aborted(data(0))
        assert not scan.ends_empty_transaction(marker(1, kind=ControlType.ABORT), ControlType.ABORT)

    def test_an_index_that_remembers_too_much_aborts_nothing_later(self):
        scan = TransactionScan([EndedTransaction(1, 0, 2, 3)])
        assert not scan.is_aborted(data(5))
        again = TransactionScan([EndedTransaction(1, 0, 2, 3), EndedTransaction(1, 7, 9, 10)])
        assert not again.is_aborted(data(5))
        assert again.is_aborted(data(7))

    def test_an_emptied_control_batch_is_removed_and_an_unknown_one_kept(self):
        scan = TransactionScan()
        assert scan.ends_empty_transaction(RecordBatch(empty_batch(marker(1))), None)
        assert not scan.ends_empty_transaction(marker(2), None)


class TestLiveBatches:
    def test_a_tracked_batch_without_a_last_record_is_dead(self):
        live = LiveBatches()
        batches = [data(0, count=3), data(3, count=2), data(9, count=1)]
        for batch in batches:
            live.track(batch)
        live.count([4, 10, 77])
        assert [live.is_dead(batch) for batch in batches] == [True, False, True]
        assert not live.is_dead(data(5)), "never tracked"

    def test_an_untracked_batch_is_not_dead(self, monkeypatch):
        assert MAX_TRACKED_BATCHES > 1000
        monkeypatch.setattr("oncelog_broker.log.compaction.live_batches.MAX_TRACKED_BATCHES", 2)
        live = LiveBatches()
        batches = [data(n) for n in range(4)]
        for batch in batches:
            live.track(batch)
        live.count([1, 3])
        assert [live.is_dead(batch) for batch in batches] == [True, False, False, False]
