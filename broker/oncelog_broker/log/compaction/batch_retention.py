"""Decides which batch headers compaction must keep although their records were removed. The functions that decide about
headers do no I/O (S56, E25).

Headers and control batches contain facts that no record contains: the last sequence of each producer, the outcome of
each transaction, and the time until which tombstones must be kept (the delete horizon). Kafka's counterparts are
Cleaner and CleanedTransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog_broker.log.producers.ended_transaction import EndedTransaction
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.control import ControlType


class ProducerBatches:
    """Finds the last batch of each producer; reads only batch headers.

    This class does not see batches in the active segment or in open transactions, so it may keep the header of a batch
    without records although a later batch of the producer exists. The next cleaning drops that header.
    """

    def __init__(self, now_ms: int, expiration_ms: int) -> None:
        """`expiration_ms` is the setting producer.id.expiration.ms. The broker forgets a producer that wrote nothing
        for longer than `expiration_ms`.
        """
        self._expired_ms = now_ms - expiration_ms
        self._last: dict[int, tuple[int | None, int]] = {}
        """Producer id -> (last offset of the producer's last data batch, producer epoch); the offset is None if the
        latest epoch wrote only a marker.
        """

    def note(self, batch: RecordBatch) -> None:
        """Record the producer of `batch`. This method must be called for every batch of the log, in offset order."""
        if not batch.has_producer_id or batch.max_timestamp <= self._expired_ms:
            return
        if not batch.is_control:
            self._last[batch.producer_id] = batch.last_offset, batch.producer_epoch
            return
        known = self._last.get(batch.producer_id)
        if known is None or batch.producer_epoch > known[1]:
            self._last[batch.producer_id] = None, batch.producer_epoch

    def is_last(self, batch: RecordBatch) -> bool:
        """Whether `batch` has the last sequence of its producer or, if the producer's latest epoch wrote no data, the
        marker of that epoch.
        """
        known = self._last.get(batch.producer_id) if batch.has_producer_id else None
        if known is None:
            return False
        offset, epoch = known
        if offset is None:
            return batch.is_control and batch.producer_epoch == epoch
        return batch.last_offset == offset


class TransactionScan:
    """Follows the transactions of a log while the cleaning visits the log's batches in offset order.

    A marker may be dropped only if the scan met no data batch of the marker's transaction, which means that an earlier
    cleaning has removed all data of the transaction. A marker is therefore kept for longer than the data of its
    transaction, and aborted data never looks committed.

    `aborted` has the entries of the transaction index. The cleaning may drop the index entries of the transactions in
    the cleaned part. Dropping these entries is safe because the cleaned part contains no aborted records any more, only
    headers and
    markers, and readers ignore a marker without an index entry (S53).
    """

    def __init__(self, aborted: Sequence[EndedTransaction] = ()) -> None:
        self._coming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._open_aborted: dict[int, EndedTransaction] = {}
        self._with_data: set[int] = set()
        """The producer ids in `_open_aborted` whose aborted transaction has a data batch that the scan has met."""
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
        """Whether control batch `batch` may be dropped: either it has no record, or it is the marker of a transaction
        without data. `control_type` is the type of the batch's control record; None if the type is unknown.
        """
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
            # If an aborted transaction is still open at this point, an earlier cleaning has removed its marker and all
            # its data.
            self._open_aborted[transaction.producer_id] = transaction
            self._with_data.discard(transaction.producer_id)
