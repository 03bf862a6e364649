"""The time until which a broker may lead, derived from its knowledge of its session: a rule on numbers, without a clock
or a connection.

ZooKeeper ends a session when its *leader* has received nothing from it for the session timeout T. The leader learns of
a heartbeat that a follower answers only with that follower's next answer to the leader's own ping, half a tick later;
if the follower dies in between, the leader counts from the previous heartbeat. So an answered heartbeat proves nothing,
but the answer to a later one does: with T at least four ticks, T/8 is at least half a tick, and

    lead until s + 0.9 T,  s = sending time of the newest answered heartbeat after which another one, sent at least T/8
                               later, was answered too.

(With T = 3 s and ticks of 0.5 s, sessions were measured to end 2.03 s after the last answered heartbeat.) The remaining
tenth allows for clocks that run at different speeds. Events that the leader itself must have seen, the opening of a
session and its resumption on another connection, count at once.

With a heartbeat every T/6 the newest answered one proves the previous one. So after its last answer the lease lasts for
0.9 T - T/6 = 0.73 T, minus the time that the answer took.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

LEASE_SHARE: Final = 0.9
"""Length of the lease, as a share of the session timeout."""
PROOF_SHARE: Final = 1 / 8
"""How much later than a heartbeat the heartbeat that proves it must have been sent, as a fraction of the session
timeout."""
HEARTBEAT_SHARE: Final = 1 / 6
"""Time between two heartbeats, as a share of the session timeout. Just after an answer LEASE_SHARE - HEARTBEAT_SHARE of
the timeout remains, which `broker.session.lease` shows users."""
SILENCE_SHARE: Final = 1 / 3
"""How long a response may take before another server is tried, as a share of the session timeout: the lease still
holds then."""


class Lease:
    """All times in seconds on one clock that runs during system sleep, too (`Clock.uptime`)."""

    __slots__ = ("_answered", "_seen", "timeout")

    def __init__(self, timeout: float) -> None:
        """`timeout`: the session timeout that the server has granted."""
        self.timeout = timeout
        self._seen = -math.inf
        self._answered: deque[float] = deque()

    @property
    def until(self) -> float:
        """-inf while no heartbeat was answered."""
        return self._seen + LEASE_SHARE * self.timeout

    def seen_by_leader(self, sent: float) -> None:
        """A request that only the leader can answer, sent at `sent`, was answered."""
        self._seen = max(self._seen, sent)

    def answered(self, sent: float) -> None:
        """A heartbeat that was sent at `sent` was answered. Call it in the order of sending."""
        self._answered.append(sent)
        while self._answered[0] <= sent - PROOF_SHARE * self.timeout:
            self.seen_by_leader(self._answered.popleft())
