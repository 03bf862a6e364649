"""The replication throttle (KIP-73): limits the traffic of replicas that are not in sync, so that moving partitions
leaves bandwidth to clients.

While the rate is exceeded, the leader sends no records to throttled replicas, and the follower does not fetch
throttled partitions. The limit applies only to replicas that their topic lists as throttled, and only while they are
out of sync: an in-sync replica is never delayed, since producers wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

BURST_SECONDS: Final = 1.0
"""Seconds for which unused quota is kept."""
EVERY_REPLICA: Final = "*"
UNLIMITED: Final = 2**63 - 1
"""The default of the broker's rate settings, which means no throttle."""


class ReplicationQuota:
    """A token bucket for one direction of replication traffic of one broker. A response may exceed the rate; the next
    response then waits until the debt is repaid, so that the average rate is right for any response size.
    """

    __slots__ = ("_available", "_bytes_per_second", "_seen_at")

    def __init__(self) -> None:
        self._bytes_per_second = math.inf
        self._available = math.inf
        self._seen_at = 0.0

    def limit(self, bytes_per_second: float, now: float) -> None:
        """Set the rate from `now` (monotonic seconds) on. The debt (bytes sent above the quota) under the previous rate
        is cancelled.
        """
        rate = math.inf if bytes_per_second == UNLIMITED else bytes_per_second
        if rate != self._bytes_per_second:
            self._bytes_per_second = rate
            self._available = rate * BURST_SECONDS
            self._seen_at = now

    def record(self, size: int, now: float) -> None:
        """Charge `size` replicated bytes to the quota."""
        self._earn(now)
        self._available -= size

    def is_exceeded(self, now: float) -> bool:
        """Whether throttled replication must wait."""
        self._earn(now)
        return self._available <= 0

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the quota is no longer exceeded; 0 if it is not exceeded, infinity for a rate of
        0.
        """
        self._earn(now)
        if self._available > 0:
            return 0.0
        return (1 - self._available) / self._bytes_per_second if self._bytes_per_second else math.inf

    def _earn(self, now: float) -> None:
        if self._bytes_per_second != math.inf:
            earned = max(0.0, now - self._seen_at) * self._bytes_per_second
            self._available = min(self._available + earned, self._bytes_per_second * BURST_SECONDS)
            self._seen_at = now


class Throttles:
    """The replication quotas of one broker, as leader and as follower."""

    def __init__(self) -> None:
        self.leader = ReplicationQuota()
        self.follower = ReplicationQuota()


def is_listed(replicas: Collection[str], partition: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas includes this replica."""
    return bool(replicas) and (EVERY_REPLICA in replicas or f"{partition}:{broker_id}" in replicas)
