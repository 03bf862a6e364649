"""One partition as its leader sees it: log, leader epoch, high watermark, and in-sync replicas.

A partition with a single replica also has a leader epoch, an ISR of one broker, and a high watermark. With a single
replica, the high watermark follows the log end immediately; with several replicas, it follows the in-sync followers.
Under group commit (`waits_for_disk`), the high watermark also stays at or below the leader's synced offset. Between the
check of the leader epoch and the append, there is no `await` (E30).

Between looking up the partition and the append, a caller may wait for the validation of records or the verification of
a transaction. The append itself therefore checks that this broker still leads, and that its session with the metadata
store is valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncelog.fail_points.point import fail_point
from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.validation import AppendOrigin
from oncelog_broker.replication.follower_progress import FetchPosition, FollowerProgress
from oncelog_broker.replication.high_watermark import replicated_offset
from oncelog_broker.replication.isr import InSync, changed_isr, may_join, needed_in_sync, wanted_isr
from oncelog_broker.replication.replica import READ_COMMITTED, READ_UNCOMMITTED, Replica
from oncelog_broker.replication.throttle import is_listed
from oncelog_broker.replication.verification_guards import Guard, VerificationGuards
from oncelog_broker.runtime.answers import Answer
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.control import EndTransactionMarker

__all__ = ["MARKER_SIZE", "READ_COMMITTED", "READ_UNCOMMITTED", "Partition"]

MARKER_SIZE: Final = 78
"""Size in bytes of a batch with one marker."""


class Partition(Replica):
    """A replica that this broker hosts; this broker leads the partition unless `is_resigned`.

    Invariants, in addition to those of `Replica`: while this broker leads, the high watermark never decreases, and
    advances only while the ISR has at least min.insync.replicas members (KIP-966).
    """

    __slots__ = (
        "_is_whole",
        "_lasting",
        "_may_lead",
        "_moves_at_once",
        "_request_sync",
        "epoch_start_offset",
        "followers",
        "guards",
        "in_sync",
        "is_alone",
        "is_throttled_as_follower",
        "is_throttled_as_leader",
        "waits_for_disk",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: PartitionLog,
        *,
        broker_id: int,
        high_watermark: int = 0,
        may_lead: Callable[[], bool] | None = None,
        request_sync: Callable[[Partition], None] | None = None,
    ) -> None:
        """The parameters are those of `Replica`. `may_lead` returns whether this broker's session is valid, so that no
        other broker can have been elected; None in a single-broker cluster. `request_sync` starts a sync of the
        partition's records, which ends with `on_synced` or `on_sync_failed`; None if records are never synced before
        they are acknowledged.
        """
        super().__init__(topic, topic_id, index, log, broker_id=broker_id, high_watermark=high_watermark)
        self._may_lead = may_lead
        self._request_sync = request_sync
        self._lasting: tuple[int, ...] = (broker_id,)
        """The replicas for which min.insync.replicas is checked: all except those that a reassignment adds."""
        self.in_sync = InSync((broker_id,))
        self.followers: dict[int, FollowerProgress] = {}
        """The progress of the other replicas in this leader epoch, by broker id."""
        self.epoch_start_offset = log.log_end_offset
        """The log end offset at the beginning of this broker's leader epoch."""
        self.is_alone = True
        """Whether the partition has no other replica, so that an append is replicated immediately."""
        self.waits_for_disk = False
        """Whether records are acknowledged only when they are on this broker's disk (flush.messages=1)."""
        self._moves_at_once = True
        """Whether the high watermark follows the log end immediately: True if `is_alone` and not `waits_for_disk`."""
        self._is_whole = True
        """Whether all `_lasting` replicas are in sync; the ISR then satisfies any value of min.insync.replicas."""
        self.guards = VerificationGuards()
        self.is_throttled_as_leader = False
        """Whether fetches of out-of-sync replicas are throttled (KIP-73)."""
        self.is_throttled_as_follower = False
        self._see_config(log.config)

    # --- leading

    def lead(
        self,
        leader_epoch: int,
        isr: tuple[int, ...],
        replicas: tuple[int, ...] | None = None,
        *,
        adding: tuple[int, ...] = (),
        partition_epoch: int = -1,
        now: float = 0.0,
    ) -> None:
        """Make this broker the leader in this leader epoch. `isr` are the in-sync members of `replicas` (None means
        that all are in sync), `adding` are the replicas that a reassignment adds, and `partition_epoch` is the version
        of the state. The new leader epoch is written to the log's files only with the epoch's first batch, so that a
        startup with very many partitions writes no files. `now` is in monotonic seconds.

        A partition state that is older than the state in the controller's last response is ignored.
        """
        if leader_epoch < self.leader_epoch:
            return
        is_new_epoch = leader_epoch != self.leader_epoch or self.is_resigned
        before = self.isr
        if not self.in_sync.adopt(isr, partition_epoch, is_new_epoch=is_new_epoch):
            return
        if is_new_epoch:
            self._count_messages()
            # Discard the progress of followers from an earlier leader epoch, because a follower may truncate its log in
            # this epoch.
            self.followers.clear()
            self.guards.on_new_leader_epoch()
            self.epoch_start_offset = self.log.log_end_offset
            self.log.forget_refusal()
        self.leader, self.leader_epoch, self.is_resigned = self.broker_id, leader_epoch, False
        replicas = isr if replicas is None else replicas
        self._lasting = tuple(broker_id for broker_id in replicas if broker_id not in adding)
        others = [broker_id for broker_id in replicas if broker_id != self.broker_id]
        self.followers = {other: self.followers.get(other) or FollowerProgress(now) for other in others}
        self._doubt(before, self.isr)
        if not is_new_epoch:
            self._count_isr_change(before)
        self._see_who_is_in_sync()

    def resign(self) -> None:
        self._count_messages()
        self.followers.clear()
        self.guards.on_new_leader_epoch()
        super().resign()

    @property
    def isr(self) -> tuple[int, ...]:
        """The ISR that the controller committed last."""
        return self.in_sync.committed

    def update_config(self, config: LogConfig) -> None:
        """Apply new topic settings, including min.insync.replicas."""
        self.log.update_config(config)
        self._see_config(config)
        if not self.is_resigned:
            self._see_who_is_in_sync()

    def _see_config(self, config: LogConfig) -> None:
        self.waits_for_disk = config.syncs_before_ack and self._request_sync is not None
        self._moves_at_once = self.is_alone and not self.waits_for_disk
        as_leader, as_follower = (
            config.leader_replication_throttled_replicas,
            config.follower_replication_throttled_replicas,
        )
        self.is_throttled_as_leader = is_listed(as_leader, self.index, self.broker_id)
        self.is_throttled_as_follower = is_listed(as_follower, self.index, self.broker_id)

    def _see_who_is_in_sync(self) -> None:
        """Update everything that depends on the replicas, the ISR or the proposed ISR."""
        self.purgatory.activate()
        self.is_alone = not self.followers and self.in_sync.maximal == {self.broker_id}
        self._moves_at_once = self.is_alone and not self.waits_for_disk
        self._is_whole = set(self._lasting) <= set(self.isr)
        if self.purgatory.deletions:
            self.purgatory.on_low_watermark(self.low_watermark)
        if not self.has_enough_in_sync:
            self.purgatory.on_too_few_replicas()
        elif self.high_watermark < self.log.log_end_offset:
            self._advance_high_watermark(0)
        self._sync_if_needed()

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether the ISR is large enough for acks=all (min.insync.replicas)."""
        return self._is_whole or len(self.isr) >= needed_in_sync(
            self.log.config.min_insync_replicas, len(self._lasting)
        )

    @property
    def high_watermark_caught_up(self) -> bool:
        """Whether the high watermark has reached the start of this leader epoch, and therefore any high watermark that
        consumers saw from the previous leader (KIP-207).
        """
        return self.high_watermark >= self.epoch_start_offset

    # --- followers

    def check_follower(self, broker_id: int, position: FetchPosition) -> tuple[int, int] | None:
        """Compare a follower's log with the leader's log. Returns None if the follower's log agrees with the leader's
        log up to the follower's log end. If the logs disagree, this method returns the last common leader epoch and the
        end offset of that epoch in the leader's log, to which the follower truncates. The caller may pass a fetch to
        `on_follower_fetch` only if this method has returned None for it.

        Raises KafkaError NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, OFFSET_OUT_OF_RANGE.
        """
        if self.is_resigned or broker_id not in self.followers:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if position.leader_epoch < 0:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, "a follower without a leader epoch")
        self.check_leader_epoch(position.leader_epoch)
        divergence = self.divergence_of_follower(position.offset, position.last_fetched_epoch)
        if divergence is None and not self.log.log_start_offset <= position.offset <= self.log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return divergence

    def on_follower_fetch(
        self,
        broker_id: int,
        log_end_offset: int,
        *,
        broker_epoch: int = -1,
        log_start_offset: int = -1,
        now: float = 0.0,
    ) -> bool:
        """Process a follower's fetch in this leader epoch: the follower has all records below `log_end_offset`.

        Returns whether the follower may be ready to join the ISR. `now` is in monotonic seconds.
        """
        follower = self.followers.get(broker_id)
        if follower is None or not follower.on_fetch(
            log_end_offset,
            leader_end=self.log.log_end_offset,
            now=now,
            broker_epoch=broker_epoch,
            log_start_offset=log_start_offset,
        ):
            return False
        if self.high_watermark < self.log.log_end_offset:
            self._advance_high_watermark(0)
        if self.purgatory.deletions:
            self.purgatory.on_low_watermark(self.low_watermark)
        return broker_id not in self.in_sync.maximal and self._may_join(follower)

    def _may_join(self, follower: FollowerProgress) -> bool:
        return may_join(follower, self.high_watermark, self.epoch_start_offset, self.log.log_start_offset)

    def wanted_isr(
        self, *, now: float, lag_seconds: float, is_eligible: Callable[[int, int], bool]
    ) -> tuple[int, ...] | None:
        """Return the ISR to propose; None if nothing must change or a proposal is open.

        `is_eligible(broker id, broker epoch)` returns whether exactly that incarnation is registered. A leader whose
        log refuses appends proposes an ISR without itself, and thereby resigns. If a leader whose log refuses appends
        is the only ISR member, it first proposes other replicas as members. For a leader whose log is offline, this
        method returns None, because `IsrKeeper` resigns the leadership itself.
        """
        if self.is_resigned or self.in_sync.proposed is not None or self.log.is_offline:
            return None
        if self.log.refuses_appends and len(self.isr) > 1:
            return changed_isr(self.isr, [self.broker_id], ())
        joining = [
            broker_id
            for broker_id, follower in self.followers.items()
            if broker_id not in self.isr and self._may_join(follower) and is_eligible(broker_id, follower.broker_epoch)
        ]
        return wanted_isr(
            self.in_sync,
            self.followers,
            joining=joining,
            log_end_offset=self.log.log_end_offset,
            now=now,
            lag_seconds=lag_seconds,
        )

    def adopt_isr(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """Store the ISR with version `partition_epoch` from an AlterPartition response."""
        before = self.isr
        if self.in_sync.adopt(isr, partition_epoch, is_new_epoch=False):
            self._doubt(before, isr)
            self._count_isr_change(before)
            self._see_who_is_in_sync()

    def propose_isr(self, isr: tuple[int, ...]) -> None:
        """Store the ISR that is about to be proposed."""
        self.in_sync.propose(isr)
        self._see_who_is_in_sync()

    def withdraw_proposal(self) -> None:
        """Remove the proposal after the controller has refused it permanently."""
        self._doubt(self.in_sync.proposed or (), self.isr)
        self.in_sync.withdraw()
        self._see_who_is_in_sync()

    def _doubt(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Require members that left the ISR to fetch again before they may join."""
        for broker_id in set(before).difference(after):
            if broker_id in self.followers:
                self.followers[broker_id].may_be_gone = True

    # --- counts

    @property
    def messages_in_epoch(self) -> int:
        """The number of records appended in the present leader epoch, including control records."""
        return 0 if self.is_resigned else self.log.log_end_offset - self.epoch_start_offset

    def _count_messages(self) -> None:
        """Add the appends of the ending leader epoch to the topic's counter."""
        self.traffic.messages_in += self.messages_in_epoch

    def _count_isr_change(self, before: tuple[int, ...]) -> None:
        """Count an ISR shrink or expand, compared with the previous ISR `before`."""
        self.traffic.isr_shrinks += len(self.isr) < len(before)
        self.traffic.isr_expands += len(self.isr) > len(before)

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is out of sync, ignoring the replicas that a reassignment adds. Valid only for the
        leader.
        """
        return not self._is_whole

    @property
    def needed_in_sync(self) -> int:
        """The number of in-sync replicas that acks=all needs."""
        return needed_in_sync(self.log.config.min_insync_replicas, len(self._lasting))

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of all replicas that may be in sync; consumers cannot read earlier records,
        whichever of these replicas becomes leader. Another replica may join the ISR only when its log starts where the
        leader's log starts (`may_join`).
        """
        starts = (
            self.followers[other].log_start_offset if other in self.followers else -1
            for other in self.in_sync.maximal
            if other != self.broker_id
        )
        return min([self.log.log_start_offset, *starts])

    def delete_records_before(self, offset: int) -> None:
        """Raise the log start to `offset`. Raises KafkaError as `LogTrimmer.delete_records_before` does."""
        self.log.trimmer.delete_records_before(offset)
        self.on_log_start_moved()

    def apply_retention(self, now_ms: int) -> None:
        """Delete replicated segments by retention. Raises KafkaError as `LogTrimmer.apply_retention` does."""
        if self.log.trimmer.apply_retention(now_ms, upper_bound=self.high_watermark):
            self.on_log_start_moved()

    def on_log_start_moved(self) -> None:
        """Let the followers learn the new log start offset with their next fetch."""
        self.purgatory.activate()

    def deleted_everywhere(self, offset: int) -> Answer[ErrorCode]:
        """Return an answer (a value or a future) that completes with NONE when the low watermark has reached `offset`,
        or with NOT_LEADER_OR_FOLLOWER as soon as this broker stops leading.
        """
        if self.is_resigned:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if offset <= self.low_watermark:
            return ErrorCode.NONE
        self.purgatory.on_news()
        return self.purgatory.for_low_watermark(offset)

    # --- appending

    @property
    def is_in_doubt(self) -> bool:
        """Whether this broker's session may have expired, so that another broker may have been elected."""
        return self._may_lead is not None and not self._may_lead()

    def _why_not_append(self) -> KafkaError:
        """Return the NOT_LEADER_OR_FOLLOWER error: this broker no longer leads, or another broker may have been
        elected.
        """
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER) if self.is_resigned else in_doubt()

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
        """Append one batch as leader; returns (base offset, log append time in ms or -1). A duplicate is not appended;
        the result has the offset of the original batch. To wait until the batch is replicated, call `committed`.

        `records` is writable memory, which is modified in place. The caller has created `guard` before it verified the
        producer's transaction; the guard detects a marker that was written since then. `records_checked` means that
        each record of the batch has been checked already. Raises KafkaError NOT_LEADER_OR_FOLLOWER,
        NOT_ENOUGH_REPLICAS or INVALID_TXN_STATE before anything is written, or an error of
        PartitionLog.append_as_leader.
        """
        if self.is_resigned or (self._may_lead is not None and not self._may_lead()):
            raise self._why_not_append()
        if required_acks == -1 and not (self._is_whole or self.has_enough_in_sync):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} replicas in sync, min.insync.replicas={self.log.config.min_insync_replicas}",
            )
        if guard is not None:
            self.guards.check(guard)
        result = self.log.append_as_leader(
            records,
            leader_epoch=self.leader_epoch,
            origin=origin,
            transaction_version=transaction_version,
            records_checked=records_checked,
        )
        size, traffic = len(records), self.traffic
        traffic.bytes_in += size
        traffic.produces += 1
        self._advance_high_watermark(size)
        return result

    @fail_point("marker-written")
    def append_marker(
        self, marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, transaction_version: int = 0
    ) -> int:
        """End a producer's transaction on this partition; returns the marker's offset (S39).

        Raises KafkaError INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR,
        NOT_LEADER_OR_FOLLOWER, and NOT_ENOUGH_REPLICAS, because markers are written with acks=all.
        """
        if self.is_resigned or (self._may_lead is not None and not self._may_lead()):
            raise self._why_not_append()
        if not (self._is_whole or self.has_enough_in_sync):
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
        """Return an answer (a value or a future) that completes with NONE when all in-sync replicas have every record
        below `next_offset`; with a single replica, that is immediately.

        The answer completes with NOT_LEADER_OR_FOLLOWER as soon as this broker stops leading; the outcome is unknown
        then. If `needs_replicas` is True, the answer completes with NOT_ENOUGH_REPLICAS_AFTER_APPEND as soon as the ISR
        is smaller than min.insync.replicas.
        """
        if self.is_resigned:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if next_offset <= self.high_watermark:
            return ErrorCode.NONE
        if self.log.is_offline and self.waits_for_disk:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if needs_replicas and not self.has_enough_in_sync:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return self.purgatory.for_offset(next_offset, needs_replicas=needs_replicas)

    def acknowledged(self, next_offset: int, required_acks: int) -> Answer[ErrorCode]:
        """Return an answer that completes with NONE when a Produce request with records below `next_offset` may be
        acknowledged. For acks=all, the answer is that of `committed`. For acks=1, if `waits_for_disk` is True, the
        answer completes when the records are on this broker's disk. In all other cases the answer is immediately NONE.
        """
        if required_acks == -1:
            return self.committed(next_offset)
        if required_acks == 0 or not self.waits_for_disk:
            return ErrorCode.NONE
        if self.is_resigned:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if next_offset <= self.log.state.synced_offset:
            return ErrorCode.NONE
        return ErrorCode.KAFKA_STORAGE_ERROR if self.log.is_offline else self.synced()

    # --- group commit

    def waits_only_for_sync(self, next_offset: int, required_acks: int) -> bool:
        """Whether a request with records below `next_offset` must wait only for the next sync of the log, and for no
        replica.
        """
        state = self.log.state
        return (
            self.waits_for_disk
            and (required_acks == 1 or (required_acks == -1 and self.is_alone))
            and next_offset > state.synced_offset
            and state.offline_reason is None
            and not self.is_resigned
        )

    def synced(self) -> Answer[ErrorCode]:
        """Return an answer that completes with NONE after the next sync of the log, which covers all records that are
        appended before the sync begins.
        """
        answer = self.purgatory.for_sync()
        if self._request_sync is not None:
            self._request_sync(self)
        return answer

    @property
    def must_sync(self) -> bool:
        """Whether this broker leads the partition, and has records that must be synced before they are acknowledged
        (`waits_for_disk`).
        """
        return (
            self.waits_for_disk
            and not self.is_resigned
            and self.log.state.synced_offset < self.log.local.log_end_offset
        )

    def _sync_if_needed(self) -> None:
        if self._request_sync is not None and self.must_sync and not self.log.is_offline:
            self._request_sync(self)

    def begin_sync(self) -> bool:
        """Return whether the log must be synced now, because records are not on the disk or requests wait for it. A log
        that is paused for a move to another data directory is synced by the move (`on_log_resumed`).
        """
        if self.is_resigned or self.log.state.is_truncating or self.log.is_paused:
            return False
        if not (self.must_sync or self.purgatory.unsynced):
            return False
        self.purgatory.on_sync_begun()
        return True

    def on_synced(self) -> None:
        """After a sync: advance the high watermark, and acknowledge the records that are on the disk now."""
        if self.is_resigned:
            return
        if self.high_watermark < self.log.local.log_end_offset:
            self._advance_high_watermark(0)
        if self.purgatory.syncing:
            self.purgatory.on_synced()

    def on_log_resumed(self) -> None:
        """Continue after a pause of the log: acknowledge the waiting records if the move has synced them with its copy,
        otherwise request the sync that did not run during the pause.
        """
        if self.log.state.offline_reason is None and self.log.state.synced_offset >= self.log.local.log_end_offset:
            self.purgatory.on_sync_begun()
            self.on_synced()
        elif self._request_sync is not None and (self.must_sync or self.purgatory.unsynced):
            self._request_sync(self)

    def on_sync_failed(self) -> None:
        """Fail all waiting appends, because the log is offline and it is unknown which of its records are on the
        disk.
        """
        self.purgatory.on_disk_failed()

    # --- the high watermark of the leader

    def _advance_high_watermark(self, new_bytes: int) -> None:
        """Recompute the high watermark after an append of `new_bytes`, or after followers have fetched."""
        end = self.log.local.log_end_offset
        if not self._moves_at_once:
            self._advance_with_others(new_bytes, end)
        elif end != self.high_watermark:
            self._move_high_watermark(end, new_bytes + self._hidden_bytes, is_log_end=True)

    def _advance_with_others(self, new_bytes: int, end: int) -> None:
        """Recompute the high watermark of a partition that waits for followers, for this broker's disk, or for both."""
        self._hidden_bytes += new_bytes
        if new_bytes and (self.purgatory.replica_fetches or self.purgatory.idle):
            self.purgatory.on_appended(new_bytes)
        if self.waits_for_disk:
            if new_bytes and self._request_sync is not None:
                self._request_sync(self)
                return  # the new records are not on the disk yet
            end = self.log.state.synced_offset
        if not self.has_enough_in_sync:
            return
        ends = [
            self.followers[other].log_end_offset if other in self.followers else None
            for other in self.in_sync.maximal
            if other != self.broker_id
        ]
        replicated = replicated_offset(end, ends)
        if replicated is not None and replicated > self.high_watermark:
            # Count all bytes above the old high watermark as readable. If fewer bytes are readable, the only
            # consequence is that a waiting fetch completes too early.
            self._move_high_watermark(replicated, self._hidden_bytes)
            if self.purgatory.replica_fetches or self.purgatory.idle:
                self.purgatory.on_news()


def in_doubt() -> KafkaError:
    """Return the error for requests while this broker's session may have expired."""
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the session with ZooKeeper is in doubt")
