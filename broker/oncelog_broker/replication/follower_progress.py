"""Records how far a follower has fetched: the fields of its Fetch requests, and the state that the leader derives from
these fields.
"""

from __future__ import annotations

from oncelog_protocol.light_classes import NamedTuple


class FetchPosition(NamedTuple):
    """The state of a follower's log, as sent in its Fetch request."""

    offset: int
    """The follower's log end offset."""
    last_fetched_epoch: int
    """The leader epoch of the follower's last record; -1 for an empty log."""
    leader_epoch: int
    """The leader epoch in which the follower follows the leader."""
    log_start_offset: int = -1
    """The follower's log start offset that is on the follower's disk; -1 if unknown."""


class FollowerProgress:
    """What a leader knows about one follower in one leader epoch. Fetches that the follower sent to another leader, or
    in another epoch, are not counted, because the follower may have truncated its log since.
    """

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
        """`now` is the start of the epoch in monotonic seconds; every follower then counts as caught up."""
        self.broker_epoch = -1
        """The broker epoch of the follower's last fetch; fetches of earlier incarnations are ignored (KIP-903)."""
        self.log_end_offset: int | None = None
        """The follower's log end offset; None until the follower has fetched in this epoch."""
        self.log_start_offset = -1
        self.last_caught_up = now
        """Monotonic seconds when the follower last had all records up to the leader's log end."""
        self.may_be_gone = False
        """Whether the follower has left the ISR, or was refused by the controller, since its last fetch. While this is
        True, the follower must not be proposed for the ISR, because its broker may have stopped.
        """
        self._asked_at = now
        self._leader_end_then = 0

    def on_fetch(
        self, log_end_offset: int, *, leader_end: int, now: float, broker_epoch: int = -1, log_start_offset: int = -1
    ) -> bool:
        """Process a fetch from `log_end_offset` on: the follower has all records below that offset. Returns False if
        the fetch is ignored.
        """
        if broker_epoch < self.broker_epoch:
            return False
        if log_end_offset >= leader_end:
            self.last_caught_up = max(self.last_caught_up, now)
        elif self.log_end_offset is not None and log_end_offset >= self._leader_end_then:
            # The follower has every record that existed at its previous fetch, so it is behind by only one round trip.
            self.last_caught_up = max(self.last_caught_up, self._asked_at)
        self.broker_epoch = broker_epoch
        self.may_be_gone = False
        self.log_end_offset = log_end_offset
        self.log_start_offset = log_start_offset
        self._asked_at, self._leader_end_then = now, leader_end
        return True

    def on_unchanged_fetches(self, until: float) -> None:
        """Process the fetches until the monotonic time `until` that changed nothing: since the last `on_fetch`, the
        follower has had all records up to the leader's log end, and the log end has not moved.
        """
        if until > self.last_caught_up:
            self.last_caught_up = until
        if until > self._asked_at:
            self._asked_at = until
