"""Decides which batches must outlive their records. Pure (S56, E25).

Three facts are in batch headers and control batches, not in records: the last sequence of each producer, the outcome of
each transaction, and until when deletions must stay visible. Source: Kafka's Cleaner and CleanedTransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.control import ControlType


class ProducerBatches:
    """The last batch of each known producer, by the headers alone.

    This may keep too much, since it does not see the active segment and open transactions: an empty header remains,
    which the next cleaning drops.
    """

    def __init__(self, now_ms: int, expiration_ms: int) -> None:
        """`expiration_ms`: producer.id.expiration.ms. A producer that was silent for longer is no longer known."""
        self._expired_ms = now_ms - expiration_ms
        self._last: dict[int, tuple[int | None, int]] = {}
        """Producer id -> (last offset of its last data batch, None if a later epoch has only a marker; epoch)."""

    def note(self, batch: RecordBatch) -> None:
        """Must be called for every batch, in order."""
        if not batch.has_producer_id or batch.max_timestamp <= self._expired_ms:
            return
        if not batch.is_control:
            self._last[batch.producer_id] = batch.last_offset, batch.producer_epoch
            return
        known = self._last.get(batch.producer_id)
        if known is None or batch.producer_epoch > known[1]:
            self._last[batch.producer_id] = None, batch.producer_epoch

    def is_last(self, batch: RecordBatch) -> bool:
        """Whether `batch` holds the last sequence of its producer, or, if no data says more, its last epoch."""
        known = self._last.get(batch.producer_id) if batch.has_producer_id else None
        if known is None:
            return False
        offset, epoch = known
        if offset is None:
            return batch.is_control and batch.producer_epoch == epoch
        return batch.last_offset == offset


class TransactionScan:
    """Follows the transactions of a log while its batches are visited in order.

    A marker may be dropped only if no batch of its transaction was met on the way: an earlier cleaning has removed
    them. So markers outlive the data of their transaction, and aborted data never looks committed.

    `aborted` comes from the transaction index. Its entries may be dropped in the cleaned part: it has no aborted
    records any more, only headers and markers, and a marker without an index entry has no effect on a reader (S53).
    """

    def __init__(self, aborted: Sequence[EndedTransaction] = ()) -> None:
        self._coming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._open_aborted: dict[int, EndedTransaction] = {}
        self._with_data: set[int] = set()
        """Producers with an open aborted transaction of which a batch was met."""
        self._committed_with_data: set[int] = set()

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Whether the transaction of data batch `batch` is aborted."""
        self._advance(batch.last_offset)
        if not batch.is_transactional:
            return False
        aborted = self._open_aborted.get(batch.producer_id)
        if aborted is not None and batch.last_offset < aborted.last_offset:
            self._with_data.add(batch.producer_id)
            return True
        self._committed_with_data.add(batch.producer_id)
        return False

    def ends_empty_transaction(self, batch: RecordBatch, control_type: ControlType | None) -> bool:
        """Whether control batch `batch` is no longer needed: it is empty, or the marker of a transaction without data.
        `control_type`: of its record; None if the type is unknown."""
        self._advance(batch.last_offset)
        if batch.records_count == 0:
            return True
        producer_id = batch.producer_id
        if control_type is ControlType.ABORT:
            self._open_aborted.pop(producer_id, None)
            if producer_id in self._with_data:
                self._with_data.discard(producer_id)
                return False
            had_data = producer_id in self._committed_with_data
            self._committed_with_data.discard(producer_id)
            return not had_data
        if control_type is ControlType.COMMIT:
            had_data = producer_id in self._committed_with_data
            self._committed_with_data.discard(producer_id)
            return not had_data
        return False

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            transaction = self._coming.pop()
            # A transaction that is still open here has lost its marker to an earlier cleaning, with all its data.
            self._open_aborted[transaction.producer_id] = transaction
            self._with_data.discard(transaction.producer_id)
