"""The in-sync replicas (ISR): how many are needed, ISR shrink and expand, and the state while a proposal is open. Pure.

Only the controller changes the ISR. A leader proposes a change (AlterPartition, KIP-497), one per partition at a time.
Until the answer, either ISR may be the true one, so the high watermark counts the members of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oncelog_broker.replication.follower_progress import FollowerProgress


def needed_in_sync(min_insync_replicas: int, replicas: int) -> int:
    """How many replicas must be in sync for acks=all: never more than the partition has, as in Kafka since 4.0
    (KIP-966)."""
    return min(min_insync_replicas, replicas)


def lags(follower: FollowerProgress, log_end_offset: int, now: float, lag_seconds: float) -> bool:
    """Whether a member must leave the ISR: it has been behind for longer than replica.lag.time.max.ms.

    `now` is in monotonic seconds, as are the times in `follower`.
    """
    return follower.log_end_offset != log_end_offset and now - follower.last_caught_up > lag_seconds


def may_join(follower: FollowerProgress, high_watermark: int, epoch_start_offset: int, log_start_offset: int) -> bool:
    """Whether a replica may join the ISR: it has all acknowledged records of this leader epoch and earlier ones, it has
    deleted the records that the leader has deleted (`log_start_offset` is the leader's), and it has fetched since it
    was last removed.

    The high watermark of a new leader may be below records that the previous leader acknowledged. All of these lie
    below the start of the new epoch, hence the check of `epoch_start_offset`.
    """
    end = follower.log_end_offset
    if end is None or end < high_watermark or end < epoch_start_offset:
        return False
    return follower.log_start_offset >= log_start_offset and not follower.may_be_gone


class InSync:
    """The ISR of a partition as its leader knows it: `committed` by the controller, and the `proposed` one, if any."""

    __slots__ = ("committed", "maximal", "partition_epoch", "proposed")

    def __init__(self, isr: tuple[int, ...]) -> None:
        self.committed = isr
        self.partition_epoch = -1
        """The partition epoch of `committed`; a proposal names it."""
        self.proposed: tuple[int, ...] | None = None
        """The proposed ISR, until it is known whether the controller accepted it."""
        self.maximal: frozenset[int] = frozenset(isr)
        """Every broker that may be in sync: the committed and the proposed ISR together."""

    def adopt(self, isr: tuple[int, ...], partition_epoch: int, *, is_new_epoch: bool) -> bool:
        """Take the ISR from the image or an AlterPartition response; False if a newer state is known.

        `is_new_epoch`: the leader epoch is new. A proposal ends with a new leader epoch or partition epoch, since the
        controller can no longer accept it.
        """
        if not is_new_epoch and partition_epoch < self.partition_epoch:
            return False
        if is_new_epoch or partition_epoch != self.partition_epoch:
            self.proposed = None
        self.committed, self.partition_epoch = isr, partition_epoch
        self._see_who_may_be()
        return True

    def propose(self, isr: tuple[int, ...]) -> None:
        """Note the ISR that is about to be proposed."""
        assert self.proposed is None, "one change at a time"
        self.proposed = isr
        self._see_who_may_be()

    def withdraw(self) -> None:
        """Drop the proposal: the controller has refused it for good."""
        self.proposed = None
        self._see_who_may_be()

    def _see_who_may_be(self) -> None:
        self.maximal = frozenset(self.committed).union(self.proposed or ())


def changed_isr(committed: tuple[int, ...], leaving: Iterable[int], joining: Iterable[int]) -> tuple[int, ...] | None:
    """`committed` without `leaving` and with `joining`; None if that changes nothing or would leave the ISR empty."""
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
    """The ISR to propose: without lagging members, with the replicas `joining` that do not lag; None if that is the
    present ISR.

    A lagging replica may have all acknowledged records nevertheless, as nothing is acknowledged while the ISR is too
    small. If it joined, it would be removed again, and two such replicas would alternate for ever.
    """
    lagging = {
        broker_id for broker_id, follower in followers.items() if lags(follower, log_end_offset, now, lag_seconds)
    }
    return changed_isr(in_sync.committed, lagging, (broker_id for broker_id in joining if broker_id not in lagging))
