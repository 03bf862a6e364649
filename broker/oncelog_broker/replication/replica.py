"""What a replica of a partition is in either role: its log, its leader epoch, its high watermark, and as a follower.

A follower takes what its leader has, with the leader's offsets and epochs, and cuts what the leader has not. Its high
watermark and last stable offset are right at any time, since in the next moment it may lead.
"""

from __future__ import annotations

from typing import Any, Final

from oncelog.fail_points.point import FailPoint, fail_point
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.producers.state import NOTHING_UNSTABLE
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.observability.topic_traffic import TopicTraffic
from oncelog_broker.replication.high_watermark import at_start, high_watermark_of_follower
from oncelog_broker.replication.truncation import NO_EPOCH_IN_COMMON
from oncelog_broker.replication.waiting import Waiting
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
ATTRIBUTES_AT: Final = 22
"""Where in a batch the byte lies that says whether it is transactional, or a marker."""


def _replicated(_: Replica, records: memoryview, **__: Any) -> FailPoint | None:
    """The fail point at which the follower is that takes these: as the first batch of them says."""
    attributes = records[ATTRIBUTES_AT] if len(records) else 0
    if attributes & CONTROL_BIT:
        return "marker-replicated"
    return "replicate" if attributes & TRANSACTIONAL_BIT else None


class Replica:
    """Invariants: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset; consumers read below the
    high watermark only; it goes back when the log is truncated, and never otherwise."""

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
        "told_in_epoch",
        "topic",
        "topic_id",
        "traffic",
        "waiting",
    )

    def __init__(
        self, topic: str, topic_id: bytes, index: int, log: PartitionLog, *, broker_id: int, high_watermark: int = 0
    ) -> None:
        """`broker_id` is this broker; `high_watermark` as it was last noted down, 0 for a new replica."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.broker_id = broker_id
        self.leader = NO_LEADER
        """Whom it follows; itself where it leads."""
        self.leader_epoch = -1
        self.told_in_epoch = -1
        """The last leader epoch in which a leader may have heard where this log ends, and may count on that."""
        self.is_resigned = False
        """This broker leads the partition no more: nobody may begin to wait here."""
        self._hidden_bytes = 0
        """At least what lies between high watermark and log end."""
        self.high_watermark = at_start(high_watermark, log.log_start_offset, log.log_end_offset)
        self.waiting = Waiting()
        self.traffic = TopicTraffic()
        """Where what comes in and goes out is counted; the partitions of a topic share one (`Replicas`)."""
        self._producers = log.producers.state
        self._note_stable_offset()

    def _note_stable_offset(self) -> None:
        self._producers.on_high_watermark(self.high_watermark)
        self._stable_offset = self.last_stable_offset
        """As of the last append while a transaction was open."""
        self._unstable_bytes = int(self._stable_offset < self.high_watermark)
        """At least what lies between last stable offset and high watermark; 0 where those are the same."""

    def __repr__(self) -> str:
        role = "resigned" if self.is_resigned else "leading"
        return f"{type(self).__name__}({self.log!r}, {role} in epoch {self.leader_epoch}, up to {self.high_watermark})"

    # --- the high watermark

    def _move_high_watermark(self, offset: int, new_bytes: int, *, is_log_end: bool = False) -> None:
        """Everything below `offset`, beyond the high watermark, is replicated; `new_bytes` can be read now.
        `is_log_end`: the caller knows that the log ends there."""
        before = self.high_watermark
        self.high_watermark = offset
        if is_log_end or offset == self.log.log_end_offset:
            self._hidden_bytes = 0
        stable_bytes = new_bytes
        if self._unstable_bytes or self._producers.first_unstable_offset != NOTHING_UNSTABLE:
            stable_bytes = self._advance_last_stable_offset(new_bytes, before)
        if self.waiting.fetches:
            self.waiting.on_readable(new_bytes, stable_bytes)
        if self.waiting.appends:
            self.waiting.on_high_watermark(offset)

    def _advance_last_stable_offset(self, new_bytes: int, old_high_watermark: int) -> int:
        """How many bytes have become stable: 0, or (more is no harm, a fetch then ends early) all that was unstable."""
        before = self._stable_offset if self._unstable_bytes else old_high_watermark
        producers, high_watermark = self._producers, self.high_watermark
        if producers.unreplicated:
            producers.on_high_watermark(high_watermark)
        if producers.first_unstable_offset >= high_watermark:
            self._stable_offset = high_watermark
        else:
            self._stable_offset = self.log.reader.last_stable_offset(high_watermark)
        unstable_bytes = self._unstable_bytes + new_bytes
        self._unstable_bytes = 0 if self._stable_offset == self.high_watermark else max(1, unstable_bytes)
        return unstable_bytes if self._stable_offset > before else 0

    # --- following

    def follow(self, leader: int, leader_epoch: int) -> None:
        """Fetch from `leader` from now on; NO_LEADER: there is none. Whoever waits here is answered."""
        self.leader, self.leader_epoch = leader, leader_epoch
        if not self.log.is_offline:
            self.told_in_epoch = leader_epoch
        self.resign()

    def may_begin_again(self, leader_epoch: int) -> bool:
        """Whether the log, which is offline, may be opened again with less than it held, by a state of that leader
        epoch in which this replica is not in sync.

        Only in a leader epoch in which nobody has heard of it. In an older one its leader may be about to have it join
        the ISR, by where it ended, or hear so yet: what it was told may come late. It would be in sync without what it
        has given up, and might lead. In a newer one nothing of that counts, nor does the controller grant it (KIP-101).
        """
        return leader_epoch > self.told_in_epoch

    def resign(self) -> None:
        """This broker leads the partition no more: whoever waits is answered now and will find out."""
        self.is_resigned = True
        self.waiting.on_resigned()

    @fail_point("replicate", "marker-replicated", which=_replicated)
    def append_as_follower(
        self, records: memoryview, *, leader_epoch: int, high_watermark: int, log_start_offset: int
    ) -> None:
        """Take what the leader of `leader_epoch` sent: batches from our log's end on, its high watermark, and where its
        log begins. Raises what PartitionLog.append_as_follower raises."""
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

    def on_truncated(self) -> None:
        """The log's end was cut, or the log has begun anew elsewhere."""
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
        """Up to where a read_committed reader may read: the high watermark, as long as no transaction is open (S50)."""
        return self.log.reader.last_stable_offset(self.high_watermark)

    def upper_bound(self, isolation_level: int) -> int:
        """The offset below which a consumer may read (S50, S54)."""
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark

    def check_reader(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Where a consumer at `fetch_offset` holds what this log does not, as `divergence` says; None: it may read.

        A follower judges nothing above its high watermark: there it may have less than its leader, or what its leader
        has not. Raises KafkaError: OFFSET_OUT_OF_RANGE; of a follower OFFSET_NOT_AVAILABLE, where the leader must be
        asked (KIP-392).
        """
        if fetch_offset > self.high_watermark and not self.leads:
            if fetch_offset > self.log.log_end_offset:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "this follower is not so far")
            return None
        return self.divergence(fetch_offset, last_fetched_epoch)

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
        if self._is_empty and fetch_offset == self.log.log_end_offset:
            return None  # nothing lies before it, here nor there
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch < 0 or fetch_offset < self.log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < fetch_offset else None

    def divergence_of_follower(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """As `divergence`, for another replica. Where this log is empty and has no epoch, whatever the other one holds
        has to go: it may be a leader that was elected though it was not in sync."""
        if self._is_empty and last_fetched_epoch >= 0 and fetch_offset > self.log.log_end_offset:
            return NO_EPOCH_IN_COMMON, self.log.log_end_offset
        return self.divergence(fetch_offset, last_fetched_epoch)

    @property
    def _is_empty(self) -> bool:
        """Whether the log has no record and knows of none that it had."""
        return self.log.latest_epoch < 0 and self.log.log_start_offset == self.log.log_end_offset
