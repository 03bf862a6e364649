"""Computes from the heartbeats of a session until when its broker may lead. This module only calculates; it reads no
clock and uses no connection.

ZooKeeper ends a session when the *leader* of the ensemble has received nothing from the session for the session timeout
T. If the client is connected to a follower, the follower answers the heartbeat itself, and reports it to the leader up
to half a tick later, with its answer to the leader's ping. If the follower dies before the report, the leader counts
from the previous heartbeat. The answer to a heartbeat therefore does not prove that the leader has received that
heartbeat. The answer to a heartbeat sent half a tick later proves this. Since T is at least four ticks, half a tick is
at most T/8, which leads to this rule:

    The broker leads until s + 0.9 T, where s is the sending time of the newest answered heartbeat after which another
    heartbeat, sent at least T/8 later, was answered, too.

(With T = 3 s and ticks of 0.5 s, measured sessions ended 2.03 s after the last answered heartbeat.) The remaining tenth
of T allows for clocks that run at different speeds. The opening of a session, and its resumption on another connection,
count immediately, because the leader itself must have seen these events.

Heartbeats are sent every T/6, so the answer to the newest heartbeat proves that the leader has received the previous
heartbeat. After the last answer, the lease therefore lasts for 0.9 T - T/6 = 0.73 T, minus the time between sending
that heartbeat and its answer.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

LEASE_SHARE: Final = 0.9
"""Length of the lease, as a share of the session timeout."""
PROOF_SHARE: Final = 1 / 8
"""Minimum time between a heartbeat and a later heartbeat whose answer proves that the leader has received the earlier
one, as a share of the session timeout.
"""
HEARTBEAT_SHARE: Final = 1 / 6
"""Time between two heartbeats, as a share of the session timeout. Immediately after an answer, LEASE_SHARE -
HEARTBEAT_SHARE of the timeout remains; the description of the setting `broker.session.lease` tells users this share.
"""
SILENCE_SHARE: Final = 1 / 3
"""If a response takes longer than this share of the session timeout, the client tries another server. The share is
small enough that the lease is still valid at that time.
"""


class Lease:
    """The lease of one session. All times are in seconds on a clock that also runs during system sleep
    (`Clock.uptime`).
    """

    __slots__ = ("_answered", "_seen", "timeout")

    def __init__(self, timeout: float) -> None:
        """`timeout` is the session timeout that the server has granted, in seconds."""
        self.timeout = timeout
        self._seen = -math.inf
        self._answered: deque[float] = deque()

    @property
    def until(self) -> float:
        """The end of the lease, in seconds of the clock; -inf while no heartbeat was proven by a later answer."""
        return self._seen + LEASE_SHARE * self.timeout

    def seen_by_leader(self, sent: float) -> None:
        """Record the answer to a request that only the leader of the ensemble can answer; `sent` is the time when that
        request was sent.
        """
        self._seen = max(self._seen, sent)

    def answered(self, sent: float) -> None:
        """Record that a heartbeat that was sent at time `sent` was answered. Heartbeats must be passed in the order of
        sending.
        """
        self._answered.append(sent)
        while self._answered[0] <= sent - PROOF_SHARE * self.timeout:
            self.seen_by_leader(self._answered.popleft())
