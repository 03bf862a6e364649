"""Filters out aborted records (read_committed).

The broker sends entire batches up to the last stable offset, and a list of the aborted transactions that overlap these
batches; each entry has a producer id and the transaction's first offset (S52). In offset order, a producer's
transactional batches are aborted from that first offset until its ABORT marker; batches after that marker belong to
another transaction.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncelog_protocol.messages.fetch import FetchResponse
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.control import read_marker

AbortedTransaction = FetchResponse.FetchableTopicResponse.PartitionData.AbortedTransaction


class AbortedTransactions:
    """The aborted transactions of one Fetch response for one partition. Pass the batches of the response to
    `next_is_aborted` in order.
    """

    __slots__ = ("_aborting", "_upcoming")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._upcoming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborting: set[int] = set()

    def next_is_aborted(self, batch: RecordBatch) -> bool:
        """Advance to `batch` and return whether its records must be skipped. Raises CorruptBatch for an unreadable
        marker."""
        upcoming = self._upcoming
        while upcoming and upcoming[-1].first_offset <= batch.last_offset:
            self._aborting.add(upcoming.pop().producer_id)
        if batch.is_control:
            if batch.producer_id in self._aborting:
                marker = read_marker(batch)
                if marker is not None and not marker.is_commit:
                    self._aborting.discard(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._aborting
