"""The state of a replica in either role, and its operations as a follower. The state is log, leader epoch and high
watermark.

A follower appends the leader's records with the leader's offsets and epochs, and truncates records that the leader does
not have. A follower's high watermark and last stable offset are always valid, since the follower may become leader at
any moment.
"""

from __future__ import annotations

from typing import Any, Final

from oncelog.fail_points.point import FailPoint, fail_point
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.producers.state import NOTHING_UNSTABLE
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.observability.topic_traffic import TopicTraffic
from oncelog_broker.replication.high_watermark import at_start, high_watermark_of_follower
from oncelog_broker.replication.purgatory import Purgatory
from oncelog_broker.replication.truncation import NO_EPOCH_IN_COMMON
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import ATTRIBUTES_LOW_BYTE_AT, CONTROL_BIT, TRANSACTIONAL_BIT

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1


def _replicated(_: Replica, records: memoryview, **__: Any) -> FailPoint | None:
    """Return the fail point for appending these records as a follower, according to their first batch; None for records
    outside of transactions.
    """
    attributes = records[ATTRIBUTES_LOW_BYTE_AT] if len(records) else 0
    if attributes & CONTROL_BIT:
        return "marker-replicated"
    return "replicate" if attributes & TRANSACTIONAL_BIT else None


class Replica:
    """One replica of a partition, on this broker. Invariants: log_start_offset <= last_stable_offset <= high_watermark
    <= log_end_offset. Consumers read only below the high watermark, which decreases only when the log is truncated.
    """

    __slots__ = (
        "_hidden_bytes",
        "_producers",
        "_stable_offset",
        "_unstable_bytes",
        "broker_id",
        "high_watermark",
        "index",
        "is_resigned",
        "leader",
        "leader_epoch",
        "log",
        "purgatory",
        "told_in_epoch",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(
        self, topic: str, topic_id: bytes, index: int, log: PartitionLog, *, broker_id: int, high_watermark: int = 0
    ) -> None:
        """`broker_id` is the id of this broker; `high_watermark` is the checkpointed high watermark, 0 for a new
        replica.
        """
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.broker_id = broker_id
        self.leader = NO_LEADER
        """The broker id of the leader; this broker's own id if it leads."""
        self.leader_epoch = -1
        self.told_in_epoch = -1
        """The last leader epoch in which a leader may have learned the end offset of this log, and may still rely on
        that offset.
        """
        self.is_resigned = False
        """Whether this broker does not lead the partition, so that no request may start to wait at this partition."""
        self._hidden_bytes = 0
        """A lower bound of the bytes between the high watermark and the log end."""
        self.high_watermark = at_start(high_watermark, log.log_start_offset, log.log_end_offset)
        self.purgatory = Purgatory()
        self.traffic = TopicTraffic()
        """Traffic counters, shared by the partitions of a topic (`Replicas`)."""
        self._producers = log.producers.state
        self._note_stable_offset()

    def _note_stable_offset(self) -> None:
        self._producers.on_high_watermark(self.high_watermark)
        self._stable_offset = self.last_stable_offset
        """The LSO (last stable offset) at the last append during an open transaction."""
        self._unstable_bytes = int(self._stable_offset < self.high_watermark)
        """A lower bound of the bytes between the last stable offset and the high watermark; 0 if the two offsets are
        equal.
        """

    def __repr__(self) -> str:
        role = "resigned" if self.is_resigned else "leading"
        return f"{type(self).__name__}({self.log!r}, {role} in epoch {self.leader_epoch}, up to {self.high_watermark})"

    # --- changes of the high watermark

    def _move_high_watermark(self, offset: int, new_bytes: int, *, is_log_end: bool = False) -> None:
        """Set the high watermark to `offset`, after which `new_bytes` more bytes are readable. `is_log_end` means that
        the caller knows that the log ends at this offset.
        """
        before = self.high_watermark
        self.high_watermark = offset
        if is_log_end or offset == self.log.log_end_offset:
            self._hidden_bytes = 0
        stable_bytes = new_bytes
        if self._unstable_bytes or self._producers.first_unstable_offset != NOTHING_UNSTABLE:
            stable_bytes = self._advance_last_stable_offset(new_bytes, before)
        if self.purgatory.fetches:
            self.purgatory.on_readable(new_bytes, stable_bytes)
        if self.purgatory.appends:
            self.purgatory.on_high_watermark(offset)

    def _advance_last_stable_offset(self, new_bytes: int, old_high_watermark: int) -> int:
        """Return the number of bytes that became stable: 0, or all unstable bytes. The number may be too high; a
        waiting fetch then only completes too early.
        """
        before = self._stable_offset if self._unstable_bytes else old_high_watermark
        producers, high_watermark = self._producers, self.high_watermark
        if producers.unreplicated:
            producers.on_high_watermark(high_watermark)
        if producers.first_unstable_offset >= high_watermark:
            self._stable_offset = high_watermark
        else:  # repeats the code of `last_stable_offset` to save a call
            first, start = producers.first_unstable_offset, self.log.state.log_start_offset
            self._stable_offset = first if first > start else start
        unstable_bytes = self._unstable_bytes + new_bytes
        self._unstable_bytes = 0 if self._stable_offset == high_watermark else unstable_bytes or 1
        return unstable_bytes if self._stable_offset > before else 0

    # --- following

    def follow(self, leader: int, leader_epoch: int) -> None:
        """Follow `leader` from now on; NO_LEADER means that the partition has no leader. All waiting requests are
        completed.
        """
        self.leader, self.leader_epoch = leader, leader_epoch
        if not self.log.is_offline:
            self.told_in_epoch = leader_epoch
        self.resign()

    def may_begin_again(self, leader_epoch: int) -> bool:
        """Whether the offline log may be reopened with fewer records than before, given a partition state with
        `leader_epoch` in which this replica is out of sync.

        Reopening is allowed only in a leader epoch in which no leader has learned the log's end offset. In an older
        epoch, the leader may know this replica's earlier log end, for example from a delayed fetch, and may propose the
        replica for the ISR because of that log end. The replica would then be in sync without the discarded records,
        and might be elected. In a newer epoch, such a fetch is fenced, and the controller refuses such a proposal
        (KIP-101).
        """
        return leader_epoch > self.told_in_epoch

    def resign(self) -> None:
        """Stop leading: waiting requests are completed immediately, and their clients find the new leader with their
        next attempt.
        """
        self.is_resigned = True
        self.purgatory.on_resigned()

    @fail_point("replicate", "marker-replicated", which=_replicated)
    def append_as_follower(
        self, records: memoryview, *, leader_epoch: int, high_watermark: int, log_start_offset: int
    ) -> None:
        """Append batches from the leader of `leader_epoch` at the log end, and apply the leader's high watermark and
        log start offset. Raises KafkaError CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE or KAFKA_STORAGE_ERROR.
        """
        if len(records):
            self.log.append_as_follower(records, leader_epoch=leader_epoch)
            self._hidden_bytes += len(records)
            self.traffic.replication_bytes_in += len(records)
        end = self.log.log_end_offset
        offset = high_watermark_of_follower(self.high_watermark, high_watermark, end)
        if offset != self.high_watermark:
            self._move_high_watermark(offset, self._hidden_bytes)
        if self.log.log_start_offset < log_start_offset <= self.high_watermark:
            self.log.trimmer.delete_records_before(log_start_offset)

    def replace_log(self, log: PartitionLog) -> None:
        """Use `log` instead of the present log; `log` has the same records in another data directory. The counters of
        duplicate and out-of-order batches restart at 0.
        """
        self.traffic.fold(self.log.producer_state.counters)
        self.log = log
        self._producers = log.producers.state
        self._note_stable_offset()
        self.purgatory.activate()

    def on_truncated(self) -> None:
        """Adjust the high watermark after a truncation, or after the log was restarted at another offset."""
        self.high_watermark = at_start(self.high_watermark, self.log.log_start_offset, self.log.log_end_offset)
        self._hidden_bytes = int(self.high_watermark < self.log.log_end_offset)
        self._note_stable_offset()

    @property
    def leads(self) -> bool:
        """Whether this broker leads the partition."""
        return self.leader == self.broker_id and not self.is_resigned

    # --- reading

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset (LSO), below which a read_committed consumer may read: the high watermark, or the
        first offset of the oldest open transaction if lower (S50)."""
        return self.log.reader.last_stable_offset(self.high_watermark)

    def upper_bound(self, isolation_level: int) -> int:
        """Return the offset below which a consumer may read (S50, S54)."""
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark

    def check_reader(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Return where the records of a consumer at `fetch_offset` diverge from this log: the last epoch that both may
        have, and its end offset in this log. None means that they do not diverge, so the consumer may read.
        """
        if fetch_offset > self.high_watermark and not self.leads:
            if fetch_offset > self.log.log_end_offset:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "this follower has not fetched that offset yet")
            return None
        return self.divergence(fetch_offset, last_fetched_epoch)

    def check_leader_epoch(self, epoch: int) -> None:
        """Compare a client's leader epoch with this replica's; -1 means that the client does not know the epoch
        (KIP-320).

        Raises KafkaError FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch that is not above `epoch`, and its end offset; (-1, -1) if the log has no such epoch
        (KIP-101, KIP-279).

        If the present epoch has no record yet, both the present epoch and the last epoch with records end at the log
        end.
        """
        end_offset = self.log.log_end_offset
        if epoch == self.leader_epoch:
            return epoch, end_offset
        latest = self.log.latest_epoch
        if 0 <= latest < epoch < self.leader_epoch:
            return latest, end_offset
        return self.log.leader_epochs.end_offset_for_epoch(epoch, end_offset)

    def divergence(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Return where the log of a reader at `fetch_offset`, whose last record has `last_fetched_epoch`, diverges from
        this log (KIP-595).

        Returns None if the logs do not diverge; otherwise returns the last epoch that both logs may have, and the end
        offset of that epoch in this log. The reader then truncates its log to that offset. Raises KafkaError
        OFFSET_OUT_OF_RANGE if no common epoch is known, or if this log starts later.
        """
        if last_fetched_epoch < 0:
            return None
        if self._is_empty and fetch_offset == self.log.log_end_offset:
            return None  # the logs diverge at their start: neither log has a record before that offset
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch < 0 or fetch_offset < self.log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < fetch_offset else None

    def divergence_of_follower(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Return where the log of another replica diverges from this log: the last epoch that both logs may have, and
        its end offset in this log; None if the logs do not diverge. If this log is empty and has no epoch, the other
        replica must discard all its records: this broker may have been elected although it was out of sync (unclean
        election).
        """
        if self._is_empty and last_fetched_epoch >= 0 and fetch_offset > self.log.log_end_offset:
            return NO_EPOCH_IN_COMMON, self.log.log_end_offset
        return self.divergence(fetch_offset, last_fetched_epoch)

    @property
    def _is_empty(self) -> bool:
        """Whether the log has no records and no leader epoch of earlier records."""
        return self.log.latest_epoch < 0 and self.log.log_start_offset == self.log.log_end_offset
