"""How far a follower has come: what it says when it fetches, and what its leader knows from that. Pure."""

from __future__ import annotations

from typing import NamedTuple


class FetchPosition(NamedTuple):
    """What a follower says of its log when it asks for more."""

    offset: int
    """Where its log ends."""
    last_fetched_epoch: int
    """Of its last record; -1 where it has none."""
    leader_epoch: int
    """In which it follows."""
    log_start_offset: int = -1
    """Where its log begins, and will after a crash."""


class FollowerProgress:
    """One follower in one leader epoch. What it fetched from another leader, or in another epoch, says nothing of its
    log in this one."""

    __slots__ = (
        "_asked_at",
        "_leader_end_then",
        "broker_epoch",
        "last_caught_up",
        "log_end_offset",
        "log_start_offset",
        "may_be_gone",
    )

    def __init__(self, now: float) -> None:
        """`now` is monotonic, in seconds: nobody lags when an epoch begins."""
        self.broker_epoch = -1
        """Of the incarnation that asked last: what an older one says does not count (KIP-903)."""
        self.log_end_offset: int | None = None
        """None until it has fetched in this epoch."""
        self.log_start_offset = -1
        self.last_caught_up = now
        """When it last had everything that the leader had."""
        self.may_be_gone = False
        """It has left the ISR, or was refused there, since it last asked: it may not come back (a broker that is about
        to stop does not), and nobody should wait for it before it does."""
        self._asked_at = now
        self._leader_end_then = 0

    def on_fetch(
        self, log_end_offset: int, *, leader_end: int, now: float, broker_epoch: int = -1, log_start_offset: int = -1
    ) -> bool:
        """It asks for what comes behind `log_end_offset`, so it has everything below; False if that does not count."""
        if broker_epoch < self.broker_epoch:
            return False
        if log_end_offset >= leader_end:
            self.last_caught_up = max(self.last_caught_up, now)
        elif self.log_end_offset is not None and log_end_offset >= self._leader_end_then:
            # It has what there was when it asked before: it is as far behind as one round trip.
            self.last_caught_up = max(self.last_caught_up, self._asked_at)
        self.broker_epoch = broker_epoch
        self.may_be_gone = False
        self.log_end_offset = log_end_offset
        self.log_start_offset = log_start_offset
        self._asked_at, self._leader_end_then = now, leader_end
        return True
