"""How fast replicas catch up that need not hurry (KIP-73): so that moving partitions leaves room for everybody else.

The leader sends nothing more, and the follower asks for nothing more, while what was replicated is beyond the rate.
Only what is throttled by its topic counts, and only for replicas that are behind: one in sync is never held up, since
producers wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

BURST_SECONDS: Final = 1.0
"""What was not used is kept for so long."""
EVERY_REPLICA: Final = "*"
UNLIMITED: Final = 2**63 - 1
"""The rate of who is not throttled: what the broker's keys have as their default."""


class ReplicationQuota:
    """One direction of one broker. A response may go beyond the rate: what it took too much is made up for before the
    next one, so that the rate holds on average, whatever the size of responses. Pure."""

    __slots__ = ("_available", "_bytes_per_second", "_seen_at")

    def __init__(self) -> None:
        self._bytes_per_second = math.inf
        self._available = math.inf
        self._seen_at = 0.0

    def limit(self, bytes_per_second: float, now: float) -> None:
        """From `now` on, monotonic, in seconds. What is owed by the old rate is forgotten."""
        rate = math.inf if bytes_per_second == UNLIMITED else bytes_per_second
        if rate != self._bytes_per_second:
            self._bytes_per_second = rate
            self._available = rate * BURST_SECONDS
            self._seen_at = now

    def record(self, size: int, now: float) -> None:
        """So many bytes were replicated."""
        self._earn(now)
        self._available -= size

    def is_exceeded(self, now: float) -> bool:
        """Whether nothing more is to be replicated for now."""
        self._earn(now)
        return self._available <= 0

    def seconds_left(self, now: float) -> float:
        """Until it is no longer exceeded; 0 if it is not, infinity where the rate is none."""
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
    """Of one broker."""

    def __init__(self) -> None:
        self.leader = ReplicationQuota()
        self.follower = ReplicationQuota()


def is_listed(replicas: Collection[str], partition: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas has that one."""
    return bool(replicas) and (EVERY_REPLICA in replicas or f"{partition}:{broker_id}" in replicas)
