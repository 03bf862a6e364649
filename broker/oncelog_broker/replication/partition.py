"""One partition as its leader sees it: the log, the leader epoch, the high watermark, the in-sync replicas.

Even alone, a partition has a leader epoch, an ISR of one and a high watermark: with one replica it follows the log end
at once, with several it follows what the followers in sync have fetched. Between the check of the leader epoch and the
append there is no `await` (E30).
"""

from __future__ import annotations

from typing import Final

from oncelog.fail_points.point import fail_point
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.producers.state import NOTHING_UNSTABLE
from oncelog_broker.log.validation import AppendOrigin
from oncelog_broker.replication.isr import needed_in_sync, replicated_offset
from oncelog_broker.replication.verification_guards import Guard, VerificationGuards
from oncelog_broker.replication.waiting import Waiting
from oncelog_broker.runtime.answers import Answer
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.control import EndTransactionMarker

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
MARKER_SIZE: Final = 78
"""Bytes of a batch with one marker."""


class Partition:
    """A partition that this broker leads.

    Invariants: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset; the high watermark never
    goes back while this broker leads; consumers read below it only. It moves only while as many replicas are in sync as
    acks=all asks for (KIP-966).
    """

    __slots__ = (
        "_ends",
        "_hidden_bytes",
        "_is_whole",
        "_producers",
        "_replicas",
        "_stable_offset",
        "_unstable_bytes",
        "guards",
        "high_watermark",
        "index",
        "is_alone",
        "is_resigned",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "topic",
        "topic_id",
        "waiting",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, log: PartitionLog, *, leader_id: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = -1
        self.isr: tuple[int, ...] = (leader_id,)
        self._replicas: tuple[int, ...] = (leader_id,)
        self.is_alone = True
        """No other replica is in sync: what is appended is replicated."""
        self.is_resigned = False
        """This broker leads the partition no more: nobody may begin to wait here."""
        self._is_whole = True
        """All replicas are in sync, which is enough for whatever is asked."""
        self._ends: dict[int, int] = {}
        """How far the followers have come that have fetched in this leader epoch."""
        self._hidden_bytes = 0
        """At least what lies between high watermark and log end."""
        self.high_watermark = log.log_end_offset
        self.waiting = Waiting()
        self.guards = VerificationGuards()
        self._producers = log.producers.state
        self._producers.on_high_watermark(self.high_watermark)
        self._stable_offset = self.last_stable_offset
        """As of the last append while a transaction was open."""
        self._unstable_bytes = int(self._stable_offset < self.high_watermark)
        """At least what lies between last stable offset and high watermark; 0 where those are the same."""

    # --- leading

    def lead(self, leader_epoch: int, isr: tuple[int, ...], replicas: tuple[int, ...] | None = None) -> None:
        """Lead from now on with this epoch, these replicas in sync among `replicas` (None: these are all). The log
        learns of the epoch with the first batch that carries it, so that a start with very many partitions writes no
        files."""
        if leader_epoch != self.leader_epoch:
            # What followers fetched from another leader, or from us before another, says nothing about this log (B8).
            self._ends.clear()
            self.guards.on_new_leader_epoch()
        self.leader_epoch = leader_epoch
        self.isr = isr
        self._replicas = isr if replicas is None else replicas
        self.is_alone = all(broker_id == self.leader_id for broker_id in isr)
        self._is_whole = set(self._replicas) <= set(isr)
        if not self.has_enough_in_sync:
            self.waiting.on_too_few_replicas()
        elif self.high_watermark < self.log.log_end_offset:
            self._advance_high_watermark(0)

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether as many replicas are in sync as acks=all asks for."""
        return self._is_whole or len(self.isr) >= needed_in_sync(
            self.log.config.min_insync_replicas, len(self._replicas)
        )

    def on_follower_fetch(self, broker_id: int, log_end_offset: int) -> None:
        """A follower asks, in our leader epoch, for what comes behind `log_end_offset`: so far it has everything."""
        if broker_id in self._replicas and broker_id != self.leader_id:
            self._ends[broker_id] = log_end_offset
            if self.high_watermark < self.log.log_end_offset:
                self._advance_high_watermark(0)

    def resign(self) -> None:
        """This broker leads the partition no more: whoever waits is answered now and will find out."""
        self.is_resigned = True
        self.guards.on_new_leader_epoch()
        self.waiting.on_resigned()

    # --- appending

    def append(
        self,
        records: memoryview,
        *,
        required_acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
        guard: Guard | None = None,
        records_checked: bool = False,
    ) -> tuple[int, int]:
        """Append one batch as leader: (base offset, log append time in ms or -1). A duplicate appends nothing and is
        answered as it was the first time. Who has to wait until it is replicated asks `committed`.

        `records` is writable memory, patched in place. `guard` was taken before it was asked whether the producer is in
        a transaction. `records_checked`: see PartitionLog.append_as_leader. Raises KafkaError: NOT_ENOUGH_REPLICAS or
        INVALID_TXN_STATE before anything is written, or what PartitionLog.append_as_leader raises.
        """
        if required_acks == -1 and not (self._is_whole or self.has_enough_in_sync):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} replicas in sync, min.insync.replicas={self.log.config.min_insync_replicas}",
            )
        if self.is_resigned:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # it was led when the request came
        if guard is not None:
            self.guards.check(guard)
        result = self.log.append_as_leader(
            records,
            leader_epoch=self.leader_epoch,
            origin=origin,
            transaction_version=transaction_version,
            records_checked=records_checked,
        )
        self._advance_high_watermark(len(records))
        return result

    @fail_point("marker-written")
    def append_marker(
        self, marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, transaction_version: int = 0
    ) -> int:
        """End a producer's transaction on this partition; returns the marker's offset (S39).

        Raises what PartitionLog.append_marker raises, and NOT_ENOUGH_REPLICAS: markers are acks=all.
        """
        if not self.has_enough_in_sync:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{len(self.isr)} replicas in sync")
        offset = self.log.append_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            leader_epoch=self.leader_epoch,
            transaction_version=transaction_version,
        )
        self.guards.on_marker(producer_id, producer_epoch, transaction_version)
        self._advance_high_watermark(MARKER_SIZE)
        return offset

    def committed(self, next_offset: int, *, needs_replicas: bool = True) -> Answer[ErrorCode]:
        """NONE when everything below `next_offset` is on all replicas in sync: at once if it is, as always with one.

        NOT_LEADER_OR_FOLLOWER if this broker resigns before: what becomes of the records is not known then.
        NOT_ENOUGH_REPLICAS_AFTER_APPEND, where the answer `needs_replicas`, as soon as too few are in sync.
        """
        if next_offset <= self.high_watermark:
            return ErrorCode.NONE
        if self.is_resigned:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if needs_replicas and not self.has_enough_in_sync:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return self.waiting.for_offset(next_offset, needs_replicas=needs_replicas)

    def _advance_high_watermark(self, new_bytes: int) -> None:
        """`new_bytes` were appended, or replicas have come further. With one replica in sync, what is appended is
        replicated."""
        before, end = self.high_watermark, self.log.log_end_offset
        if not self.is_alone:
            self._hidden_bytes += new_bytes
            replicated = replicated_offset(end, self.leader_id, self.isr, self._ends)
            if replicated is None or replicated <= before or not self.has_enough_in_sync:
                return
            end = replicated
            new_bytes = self._hidden_bytes  # more than has become readable is no harm: a fetch then ends early
        elif self._hidden_bytes:
            new_bytes += self._hidden_bytes
        if end == before:
            return
        self.high_watermark = end
        self._hidden_bytes = 0 if end == self.log.log_end_offset else self._hidden_bytes
        stable_bytes = new_bytes
        if self._unstable_bytes or self._producers.first_unstable_offset != NOTHING_UNSTABLE:
            stable_bytes = self._advance_last_stable_offset(new_bytes, before)
        if self.waiting.fetches:
            self.waiting.on_readable(new_bytes, stable_bytes)
        if self.waiting.appends:
            self.waiting.on_high_watermark(end)

    def _advance_last_stable_offset(self, new_bytes: int, old_high_watermark: int) -> int:
        """How many bytes have become stable: 0, or (more is no harm, a fetch then ends early) all that was unstable."""
        before = self._stable_offset if self._unstable_bytes else old_high_watermark
        self._producers.on_high_watermark(self.high_watermark)
        self._stable_offset = self.log.last_stable_offset(self.high_watermark)
        unstable_bytes = self._unstable_bytes + new_bytes
        self._unstable_bytes = 0 if self._stable_offset == self.high_watermark else unstable_bytes
        return unstable_bytes if self._stable_offset > before else 0

    # --- reading

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

    def divergence(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Where a reader at `fetch_offset`, whose last record has that epoch, holds what this log does not (KIP-595).

        None where there is no such place; else the last epoch that both may have, and where it ends here: the reader
        goes back to there. Raises KafkaError OFFSET_OUT_OF_RANGE: no epoch in common is known, or the log begins later.
        """
        if last_fetched_epoch < 0:
            return None
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch < 0 or fetch_offset < self.log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < fetch_offset else None
