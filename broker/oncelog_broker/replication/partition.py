"""One partition as its leader sees it: the log, the leader epoch, the high watermark, the in-sync replicas.

Even alone, a partition has a leader epoch, an ISR of one and a high watermark: with one replica it follows the log end
at once. Between the check of the leader epoch and the append there is no `await` (E30).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncelog.fail_points.point import fail_point
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.producers.state import NOTHING_UNSTABLE
from oncelog_broker.log.validation import AppendOrigin
from oncelog_broker.replication.delayed import DelayedFetch
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.control import EndTransactionMarker

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
MARKER_SIZE: Final = 78
"""Bytes of a batch with one marker."""


class Partition:
    """A partition that this broker leads.

    Invariants: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset; the high watermark never
    goes back while this broker leads; consumers read below it only.
    """

    __slots__ = (
        "_producers",
        "_stable_offset",
        "_unstable_bytes",
        "high_watermark",
        "index",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "topic",
        "topic_id",
        "waiting_appends",
        "waiting_fetches",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, log: PartitionLog, *, leader_id: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = -1
        self.isr: tuple[int, ...] = (leader_id,)
        self.high_watermark = log.log_end_offset
        self.waiting_fetches: set[DelayedFetch] = set()
        self._producers = log.producers.state
        self._producers.on_high_watermark(self.high_watermark)
        self._stable_offset = self.last_stable_offset
        """As of the last append while a transaction was open."""
        self._unstable_bytes = int(self._stable_offset < self.high_watermark)
        """At least what lies between last stable offset and high watermark; 0 where those are the same."""
        self.waiting_appends: list[tuple[int, Callable[[KafkaError | None], None]]] = []

    def lead(self, leader_epoch: int, isr: tuple[int, ...]) -> None:
        """Lead from now on with this epoch. The log learns of it with the first batch that carries it, so that a start
        with very many partitions writes no files."""
        self.leader_epoch = leader_epoch
        self.isr = isr

    def append(
        self,
        records: memoryview,
        *,
        required_acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
    ) -> tuple[int, int]:
        """Append one batch as leader: (base offset, log append time in ms or -1). A duplicate appends nothing and is
        answered as it was the first time.

        `records` is writable memory, patched in place. Raises KafkaError: NOT_ENOUGH_REPLICAS before anything is
        written, or what PartitionLog.append_as_leader raises.
        """
        if required_acks == -1 and len(self.isr) < self.log.config.min_insync_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} replicas in sync, min.insync.replicas={self.log.config.min_insync_replicas}",
            )
        result = self.log.append_as_leader(
            records, leader_epoch=self.leader_epoch, origin=origin, transaction_version=transaction_version
        )
        self._advance_high_watermark(len(records))
        return result

    @fail_point("marker-written")
    def append_marker(
        self, marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, transaction_version: int = 0
    ) -> int:
        """End a producer's transaction on this partition; returns the marker's offset (S39).

        Raises what PartitionLog.append_marker raises.
        """
        offset = self.log.append_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            leader_epoch=self.leader_epoch,
            transaction_version=transaction_version,
        )
        self._advance_high_watermark(MARKER_SIZE)
        return offset

    def _advance_high_watermark(self, new_bytes: int) -> None:
        """With one replica in sync, what is appended is replicated."""
        before, end = self.high_watermark, self.log.log_end_offset
        if end == before:
            return
        self.high_watermark = end
        stable_bytes = new_bytes
        if self._unstable_bytes or self._producers.first_unstable_offset != NOTHING_UNSTABLE:
            stable_bytes = self._advance_last_stable_offset(new_bytes, before)
        if self.waiting_fetches:
            for fetch in list(self.waiting_fetches):
                fetch.on_readable(stable_bytes if fetch.read_committed else new_bytes)
        if self.waiting_appends:
            self._complete_appends()

    def _advance_last_stable_offset(self, new_bytes: int, old_high_watermark: int) -> int:
        """How many bytes have become stable: 0, or (more is no harm, a fetch then ends early) all that was unstable."""
        before = self._stable_offset if self._unstable_bytes else old_high_watermark
        self._producers.on_high_watermark(self.high_watermark)
        self._stable_offset = self.log.last_stable_offset(self.high_watermark)
        unstable_bytes = self._unstable_bytes + new_bytes
        self._unstable_bytes = 0 if self._stable_offset == self.high_watermark else unstable_bytes
        return unstable_bytes if self._stable_offset > before else 0

    def when_committed(self, next_offset: int, done: Callable[[KafkaError | None], None]) -> None:
        """Call `done(None)` as soon as everything below `next_offset` is on all in-sync replicas: at once if it is.

        `done(error)` instead, NOT_LEADER_OR_FOLLOWER, if this broker stops leading before: what becomes of the records
        is not known then.
        """
        if next_offset <= self.high_watermark:
            done(None)
        else:
            self.waiting_appends.append((next_offset, done))

    def _complete_appends(self) -> None:
        waiting, self.waiting_appends = self.waiting_appends, []
        for next_offset, done in waiting:
            self.when_committed(next_offset, done)

    @property
    def last_stable_offset(self) -> int:
        """Up to where a read_committed reader may read: the high watermark, as long as no transaction is open (S50)."""
        return self.log.last_stable_offset(self.high_watermark)

    def upper_bound(self, isolation_level: int) -> int:
        """The offset below which a consumer may read (S50, S54)."""
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark

    def check_leader_epoch(self, epoch: int) -> None:
        """Compare the leader epoch that a client knows with ours; -1: it knows none (KIP-320).

        Raises KafkaError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch <= `epoch` and where it ends; (-1, -1) where it is unknown (KIP-101, KIP-279).

        Our own epoch may have no record yet: it ends where the log does, and so does the last one that has.
        """
        end_offset = self.log.log_end_offset
        if epoch == self.leader_epoch:
            return epoch, end_offset
        latest = self.log.latest_epoch
        if 0 <= latest < epoch < self.leader_epoch:
            return latest, end_offset
        return self.log.leader_epochs.end_offset_for_epoch(epoch, end_offset)

    def resign(self) -> None:
        """This broker leads the partition no more: whoever waits is answered now and will find out."""
        for fetch in list(self.waiting_fetches):
            fetch.finish()
        waiting, self.waiting_appends = self.waiting_appends, []
        for _, done in waiting:
            done(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
