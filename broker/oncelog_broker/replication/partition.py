"""One partition as its leader sees it: the log, the leader epoch, the high watermark, the in-sync replicas.

Even alone, a partition has a leader epoch, an ISR of one and a high watermark: with one replica it follows the log end
at once, with several it follows what the followers in sync have fetched. Between the check of the leader epoch and the
append there is no `await` (E30).

Whoever asked for the partition may have waited since, for its records to be walked or its transaction to be verified:
so it is the append itself that asks whether this broker leads still, and whether the gate of its session is open.
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
"""Bytes of a batch with one marker."""


class Partition(Replica):
    """A replica that this broker hosts, and leads unless it `is_resigned`.

    Invariants, beside those of `Replica`: the high watermark never goes back while this broker leads; it moves only
    while as many replicas are in sync as acks=all asks for (KIP-966).
    """

    __slots__ = (
        "_is_whole",
        "_lasting",
        "_may_lead",
        "epoch_start_offset",
        "followers",
        "guards",
        "in_sync",
        "is_alone",
        "is_throttled_as_follower",
        "is_throttled_as_leader",
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
    ) -> None:
        """See `Replica`. `may_lead` is the gate, None where nobody else can be made leader (`Replicas`)."""
        super().__init__(topic, topic_id, index, log, broker_id=broker_id, high_watermark=high_watermark)
        self._may_lead = may_lead
        self._lasting: tuple[int, ...] = (broker_id,)
        """The replicas, without those that a reassignment adds: of them so many must be in sync as ever."""
        self.in_sync = InSync((broker_id,))
        self.followers: dict[int, FollowerProgress] = {}
        """The other replicas, as far as they have come in this leader epoch."""
        self.epoch_start_offset = log.log_end_offset
        """Where the epoch began in which this broker leads."""
        self.is_alone = True
        """There is no other replica: what is appended is replicated."""
        self._is_whole = True
        """All of these are in sync, which is enough for whatever is asked."""
        self.guards = VerificationGuards()
        self.is_throttled_as_leader = False
        """Whether it is sent slowly to replicas that are not in sync."""
        self.is_throttled_as_follower = False
        self._see_throttles(log.config)

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
        """Lead from now on with this epoch, these replicas in sync among `replicas` (None: these are all), of which a
        reassignment is `adding` some, as the state with version `partition_epoch` says. The log learns of the epoch
        with the first batch that carries it, so that a start with very many partitions writes no files. `now` is
        monotonic, in seconds.

        What is older than what the controller has answered since changes nothing.
        """
        if leader_epoch < self.leader_epoch:
            return
        is_new_epoch = leader_epoch != self.leader_epoch or self.is_resigned
        before = self.isr
        if not self.in_sync.adopt(isr, partition_epoch, is_new_epoch=is_new_epoch):
            return
        if is_new_epoch:
            self._count_messages()
            # What followers fetched from another leader, or from us before another, says nothing about this log.
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
        """As the controller last said."""
        return self.in_sync.committed

    def update_config(self, config: LogConfig) -> None:
        """The topic's settings are these now; among them is how many replicas must be in sync."""
        self.log.update_config(config)
        self._see_throttles(config)
        if not self.is_resigned:
            self._see_who_is_in_sync()

    def _see_throttles(self, config: LogConfig) -> None:
        as_leader, as_follower = (
            config.leader_replication_throttled_replicas,
            config.follower_replication_throttled_replicas,
        )
        self.is_throttled_as_leader = is_listed(as_leader, self.index, self.broker_id)
        self.is_throttled_as_follower = is_listed(as_follower, self.index, self.broker_id)

    def _see_who_is_in_sync(self) -> None:
        """The replicas, the ISR or the proposal for it are others than before."""
        self.is_alone = not self.followers and self.in_sync.maximal == {self.broker_id}
        self._is_whole = set(self._lasting) <= set(self.isr)
        if self.waiting.deletions:
            self.waiting.on_low_watermark(self.low_watermark)
        if not self.has_enough_in_sync:
            self.waiting.on_too_few_replicas()
        elif self.high_watermark < self.log.log_end_offset:
            self._advance_high_watermark(0)

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether as many replicas are in sync as acks=all asks for."""
        return self._is_whole or len(self.isr) >= needed_in_sync(
            self.log.config.min_insync_replicas, len(self._lasting)
        )

    @property
    def shows_all_that_was_shown(self) -> bool:
        """Whether the high watermark has come to where the leader before this one may have had it (KIP-207)."""
        return self.high_watermark >= self.epoch_start_offset

    # --- followers

    def check_follower(self, broker_id: int, position: FetchPosition) -> tuple[int, int] | None:
        """Whether a follower's log agrees with ours as far as it goes: None, or the last epoch in common, and where
        that ends here (the follower goes back to there). Only one that agrees may count: `on_follower_fetch`.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, OFFSET_OUT_OF_RANGE.
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
        """A follower asks, in our leader epoch, for what comes behind `log_end_offset`: so far it has everything.

        Whether it might join the ISR now. `now` is monotonic, in seconds.
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
        if self.waiting.deletions:
            self.waiting.on_low_watermark(self.low_watermark)
        return broker_id not in self.in_sync.maximal and self._may_join(follower)

    def _may_join(self, follower: FollowerProgress) -> bool:
        return may_join(follower, self.high_watermark, self.epoch_start_offset, self.log.log_start_offset)

    def wanted_isr(
        self, *, now: float, lag_seconds: float, is_eligible: Callable[[int, int], bool]
    ) -> tuple[int, ...] | None:
        """The ISR to propose to the controller, None while there is nothing to be changed or a proposal is open.

        `is_eligible(broker id, broker epoch)` says whether that very incarnation of a broker is alive. A leader whose
        log is offline, or takes no appends, proposes one without itself, and so resigns.
        """
        if self.is_resigned or self.in_sync.proposed is not None:
            return None
        if self.log.is_offline or self.log.refuses_appends:
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
        """The controller has answered that this is the ISR, as of that version of the state."""
        before = self.isr
        if self.in_sync.adopt(isr, partition_epoch, is_new_epoch=False):
            self._doubt(before, isr)
            self._count_isr_change(before)
            self._see_who_is_in_sync()

    def propose_isr(self, isr: tuple[int, ...]) -> None:
        """It is about to be asked of the controller."""
        self.in_sync.propose(isr)
        self._see_who_is_in_sync()

    def withdraw_proposal(self) -> None:
        """The controller has refused it, for sure."""
        self._doubt(self.in_sync.proposed or (), self.isr)
        self.in_sync.withdraw()
        self._see_who_is_in_sync()

    def _doubt(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Those who are out now have to ask once more before they may come back."""
        for broker_id in set(before).difference(after):
            if broker_id in self.followers:
                self.followers[broker_id].may_be_gone = True

    # --- what is counted

    @property
    def messages_in_epoch(self) -> int:
        """Records appended here in the present leader epoch, control records included: all that came since it began."""
        return 0 if self.is_resigned else self.log.log_end_offset - self.epoch_start_offset

    def _count_messages(self) -> None:
        """The present leader epoch is over."""
        self.traffic.messages_in += self.messages_in_epoch

    def _count_isr_change(self, before: tuple[int, ...]) -> None:
        """The controller has granted another ISR than the one `before`."""
        self.traffic.isr_shrinks += len(self.isr) < len(before)
        self.traffic.isr_expands += len(self.isr) > len(before)

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in sync, those that a reassignment adds apart; of a partition that is led."""
        return not self._is_whole

    @property
    def needed_in_sync(self) -> int:
        """How many replicas acks=all asks for."""
        return needed_in_sync(self.log.config.min_insync_replicas, len(self._lasting))

    @property
    def low_watermark(self) -> int:
        """The least log start of all replicas that may be in sync: nobody of them shows what lies before, whoever leads
        next. Who is not among them may join only when its log begins where ours does (`may_join`)."""
        starts = (
            self.followers[other].log_start_offset if other in self.followers else -1
            for other in self.in_sync.maximal
            if other != self.broker_id
        )
        return min([self.log.log_start_offset, *starts])

    def deleted_everywhere(self, offset: int) -> Answer[ErrorCode]:
        """NONE when the low watermark has come to `offset`; NOT_LEADER_OR_FOLLOWER as soon as this broker leads no
        more."""
        if self.is_resigned:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if offset <= self.low_watermark:
            return ErrorCode.NONE
        self.waiting.on_news()
        return self.waiting.for_low_watermark(offset)

    # --- appending

    def _check_may_append(self) -> None:
        """Raises KafkaError NOT_LEADER_OR_FOLLOWER: this broker leads no more, or another one may have been chosen."""
        if self.is_resigned:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self._may_lead is not None and not self._may_lead():
            raise in_doubt()

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
        a transaction. `records_checked`: see PartitionLog.append_as_leader. Raises KafkaError: NOT_LEADER_OR_FOLLOWER,
        NOT_ENOUGH_REPLICAS or INVALID_TXN_STATE before anything is written, or what PartitionLog.append_as_leader
        raises.
        """
        if self.is_resigned or self._may_lead is not None:
            self._check_may_append()
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

        Raises what PartitionLog.append_marker raises, NOT_LEADER_OR_FOLLOWER, and NOT_ENOUGH_REPLICAS: markers are
        acks=all.
        """
        if self.is_resigned or self._may_lead is not None:
            self._check_may_append()
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
        """NONE when everything below `next_offset` is on all replicas in sync: at once if it is, as always with one.

        NOT_LEADER_OR_FOLLOWER as soon as this broker leads no more, when nobody knows whether it will be;
        NOT_ENOUGH_REPLICAS_AFTER_APPEND, where the answer `needs_replicas`, as soon as too few are in sync.
        """
        if self.is_resigned:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if next_offset <= self.high_watermark:
            return ErrorCode.NONE
        if needs_replicas and not self.has_enough_in_sync:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return self.waiting.for_offset(next_offset, needs_replicas=needs_replicas)

    def _advance_high_watermark(self, new_bytes: int) -> None:
        """`new_bytes` were appended, or replicas have come further. With one replica, what is appended is
        replicated."""
        end = self.log.log_end_offset
        if not self.is_alone:
            self._advance_with_followers(new_bytes, end)
        elif end != self.high_watermark:
            self._move_high_watermark(end, new_bytes + self._hidden_bytes, is_log_end=True)

    def _advance_with_followers(self, new_bytes: int, end: int) -> None:
        self._hidden_bytes += new_bytes
        if new_bytes and self.waiting.replica_fetches:
            self.waiting.on_appended(new_bytes)
        if not self.has_enough_in_sync:
            return
        ends = (self.followers[other].log_end_offset if other in self.followers else None
                for other in self.in_sync.maximal if other != self.broker_id)  # fmt: skip
        replicated = replicated_offset(end, ends)
        if replicated is not None and replicated > self.high_watermark:
            # Counts all bytes that were hidden, though fewer may be readable now: a waiting fetch then only ends early.
            self._move_high_watermark(replicated, self._hidden_bytes)
            if self.waiting.replica_fetches:
                self.waiting.on_news()


def in_doubt() -> KafkaError:
    """Why nobody leads behind a shut gate."""
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the session with ZooKeeper is in doubt")
