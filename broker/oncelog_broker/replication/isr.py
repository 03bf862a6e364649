"""The in-sync replicas (ISR): how many are needed, when the ISR shrinks or expands, and its state while a proposal is
open.

Only the controller changes the ISR. A leader proposes a change (AlterPartition, KIP-497), with only one open proposal
for each partition. Until the controller has responded, it may have stored the committed or the proposed ISR, so the
high watermark waits for the members of both ISRs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oncelog_broker.replication.follower_progress import FollowerProgress


def needed_in_sync(min_insync_replicas: int, replicas: int) -> int:
    """Return how many replicas must be in sync for acks=all: never more than the number of replicas of the partition,
    as in Kafka since 4.0 (KIP-966).
    """
    return min(min_insync_replicas, replicas)


def lags(follower: FollowerProgress, log_end_offset: int, now: float, lag_seconds: float) -> bool:
    """Whether a member must leave the ISR because it has been behind for longer than replica.lag.time.max.ms.

    `now` is in monotonic seconds, as are the times in `follower`.
    """
    return follower.log_end_offset != log_end_offset and now - follower.last_caught_up > lag_seconds


def may_join(follower: FollowerProgress, high_watermark: int, epoch_start_offset: int, log_start_offset: int) -> bool:
    """Whether a replica may join the ISR. A replica must meet three conditions before it joins the ISR. First, the
    replica must have all acknowledged records of this leader epoch and of earlier epochs. Second, the replica must have
    deleted all records below the leader's `log_start_offset`. Third, the replica must have fetched since it was last
    removed from the ISR.

    Comparing with the high watermark alone is not enough for the first condition, because the high watermark of a new
    leader may be below records that the previous leader acknowledged. All these records are below `epoch_start_offset`,
    the start of the new epoch, so the replica must have reached this offset, too.
    """
    end = follower.log_end_offset
    if end is None or end < high_watermark or end < epoch_start_offset:
        return False
    return follower.log_start_offset >= log_start_offset and not follower.may_be_gone


class InSync:
    """What the leader knows about the ISR of a partition: the ISR `committed` by the controller, and, if a proposal is
    open, the `proposed` ISR.
    """

    __slots__ = ("committed", "maximal", "partition_epoch", "proposed")

    def __init__(self, isr: tuple[int, ...]) -> None:
        self.committed = isr
        self.partition_epoch = -1
        """The partition epoch of the `committed` ISR. Each proposal contains this partition epoch."""
        self.proposed: tuple[int, ...] | None = None
        """The proposed ISR, until the controller's decision is known; None if no proposal is open."""
        self.maximal: frozenset[int] = frozenset(isr)
        """Every broker that may be in sync: the union of the committed and the proposed ISR."""

    def adopt(self, isr: tuple[int, ...], partition_epoch: int, *, is_new_epoch: bool) -> bool:
        """Store the ISR from the cluster image or from an AlterPartition response; returns False if a newer state is
        known.

        `is_new_epoch` means that the leader epoch is new. A new leader epoch or partition epoch ends a proposal, since
        the controller can no longer accept it.
        """
        if not is_new_epoch and partition_epoch < self.partition_epoch:
            return False
        if is_new_epoch or partition_epoch != self.partition_epoch:
            self.proposed = None
        self.committed, self.partition_epoch = isr, partition_epoch
        self._see_who_may_be()
        return True

    def propose(self, isr: tuple[int, ...]) -> None:
        """Store the ISR that is about to be proposed."""
        assert self.proposed is None, "one change at a time"
        self.proposed = isr
        self._see_who_may_be()

    def withdraw(self) -> None:
        """Remove the proposal after the controller has refused it permanently."""
        self.proposed = None
        self._see_who_may_be()

    def _see_who_may_be(self) -> None:
        self.maximal = frozenset(self.committed).union(self.proposed or ())


def changed_isr(committed: tuple[int, ...], leaving: Iterable[int], joining: Iterable[int]) -> tuple[int, ...] | None:
    """Return `committed` without `leaving` and with `joining`; None if nothing changes, or if the ISR would be
    empty.
    """
    gone = set(leaving)
    isr = tuple(member for member in committed if member not in gone)
    isr += tuple(member for member in joining if member not in isr)
    return isr if isr and set(isr) != set(committed) else None


def wanted_isr(
    in_sync: InSync,
    followers: Mapping[int, FollowerProgress],
    *,
    joining: Iterable[int],
    log_end_offset: int,
    now: float,
    lag_seconds: float,
) -> tuple[int, ...] | None:
    """Return the ISR to propose, without lagging members and with those `joining` replicas that do not lag; None if
    this ISR equals the present ISR.

    A lagging replica may have all acknowledged records, because no record is acknowledged while the ISR is too small.
    If a lagging replica joined the ISR, the next check would remove it again, and two lagging replicas would alternate
    forever.
    """
    lagging = {
        broker_id for broker_id, follower in followers.items() if lags(follower, log_end_offset, now, lag_seconds)
    }
    return changed_isr(in_sync.committed, lagging, (broker_id for broker_id in joining if broker_id not in lagging))
