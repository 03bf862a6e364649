"""The in-sync replicas (ISR): how many are needed, who leaves, who joins, and what is known of it meanwhile. Pure.

The controller alone changes the ISR. A leader proposes (AlterPartition, KIP-497), one change of a partition at a time.
From then on until the answer, either ISR may be the true one, so the high watermark takes in the members of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oncelog_broker.replication.follower_progress import FollowerProgress


def needed_in_sync(min_insync_replicas: int, replicas: int) -> int:
    """How many replicas must be in sync for acks=all: never more than there are, as in Kafka since 4.0 (KIP-966)."""
    return min(min_insync_replicas, replicas)


def lags(follower: FollowerProgress, log_end_offset: int, now: float, lag_seconds: float) -> bool:
    """Whether a member of the ISR is to leave it: it was behind the leader for longer than replica.lag.time.max.ms.

    `now` is monotonic, in seconds, as are the times that `follower` has noted.
    """
    return follower.log_end_offset != log_end_offset and now - follower.last_caught_up > lag_seconds


def may_join(follower: FollowerProgress, high_watermark: int, epoch_start_offset: int, log_start_offset: int) -> bool:
    """Whether a replica may enter the ISR: it has everything that was acknowledged, in this leader epoch and before,
    nothing that was said to be deleted (that is what the leader's `log_start_offset` says), and has asked for more
    since it was last out.

    The high watermark of a new leader may be lower than what the one before acknowledged. Everything that was is below
    the place where the new leader's epoch begins, hence the second condition.
    """
    end = follower.log_end_offset
    if end is None or end < high_watermark or end < epoch_start_offset:
        return False
    return follower.log_start_offset >= log_start_offset and not follower.may_be_gone


class InSync:
    """The ISR of a partition as its leader knows it: `committed` by the controller, and perhaps `proposed`."""

    __slots__ = ("committed", "maximal", "partition_epoch", "proposed")

    def __init__(self, isr: tuple[int, ...]) -> None:
        self.committed = isr
        self.partition_epoch = -1
        """Version of the state that `committed` is from; what a proposal names."""
        self.proposed: tuple[int, ...] | None = None
        """What was asked of the controller, as long as it may have done so unknown to us."""
        self.maximal: frozenset[int] = frozenset(isr)
        """Everybody who may be in sync."""

    def adopt(self, isr: tuple[int, ...], partition_epoch: int, *, is_new_epoch: bool) -> bool:
        """The image, or the answer to a proposal, says so; False where something newer is known already.

        `is_new_epoch`: of the leader. A proposal of the old one can no longer be accepted then, as it cannot once the
        state has a newer version.
        """
        if not is_new_epoch and partition_epoch < self.partition_epoch:
            return False
        if is_new_epoch or partition_epoch != self.partition_epoch:
            self.proposed = None
        self.committed, self.partition_epoch = isr, partition_epoch
        self._see_who_may_be()
        return True

    def propose(self, isr: tuple[int, ...]) -> None:
        """It is about to be asked for."""
        assert self.proposed is None, "one change at a time"
        self.proposed = isr
        self._see_who_may_be()

    def withdraw(self) -> None:
        """The controller has refused the proposal, for sure: it will never be accepted."""
        self.proposed = None
        self._see_who_may_be()

    def _see_who_may_be(self) -> None:
        self.maximal = frozenset(self.committed).union(self.proposed or ())


def changed_isr(committed: tuple[int, ...], leaving: Iterable[int], joining: Iterable[int]) -> tuple[int, ...] | None:
    """`committed` without some and with others; None where that is the same, or nobody."""
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
    """What the leader is to propose: without those that lag, with those `joining` that do not; None if that is what
    there is.

    Who lags may have everything that was acknowledged all the same: nothing is, while the ISR is too small. Taken for
    in sync it would leave again, and two of them would take turns for ever.
    """
    lagging = {
        broker_id for broker_id, follower in followers.items() if lags(follower, log_end_offset, now, lag_seconds)
    }
    return changed_isr(in_sync.committed, lagging, (broker_id for broker_id in joining if broker_id not in lagging))
