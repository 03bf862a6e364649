"""Quota usage of all clients: a token bucket for each entity with recent usage. Pure.

A client may choose a new client id for each request, so the number of buckets is limited. Beyond the limit, all further
entities share one bucket for each kind of quota, so that new ids do not evade a quota.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.security.quotas.bucket import MAX_DEBT_WINDOWS, MAX_SECONDS, Bucket
from oncelog_broker.security.quotas.limits import Limit
from oncelog_protocol.quotas import QuotaEntity, QuotaKey

MAX_BUCKETS: Final = 10_000
"""Maximum number of token buckets of one broker; each bucket takes about 300 bytes."""
FEW_BUCKETS: Final = 1_000
"""Below this number of buckets, idle buckets are not removed."""
SWEEP_SECONDS: Final = 1.0
"""Seconds between two removals of idle buckets."""
OTHERS: Final = QuotaEntity()
"""The key of the bucket that all entities beyond MAX_BUCKETS share."""


class Usage:
    """The token buckets of one broker. Times are monotonic seconds."""

    def __init__(self, window: float, *, max_buckets: int = MAX_BUCKETS) -> None:
        """`window` is in seconds: after a pause, a client may immediately use the amount that its rate allows in one
        window.
        """
        self.window = window
        self._max_buckets = max_buckets
        self._buckets: dict[tuple[QuotaKey, QuotaEntity], Bucket] = {}
        self._sweep_at = min(FEW_BUCKETS, max_buckets)
        """The number of buckets at which `_new` removes the buckets that were idle for a window."""
        self._swept = float("-inf")

    def __len__(self) -> int:
        return len(self._buckets)

    def use(self, key: QuotaKey, limit: Limit, amount: float, now: float, *, in_full: bool = False) -> float:
        """Charge `amount` to the quota, even beyond its limit, and return the seconds that the client must wait.

        A negative `amount` is a refund. `in_full`: charge the entire amount, even to a bucket that several clients
        share and whose debt is otherwise bounded.
        """
        bucket = self._bucket(key, limit, now)
        # Do not bound the debt in the bucket of the entities beyond MAX_BUCKETS. The entities that share the bucket
        # have different rates: if one entity with a low rate drove the debt to a bound, the other entities would use
        # their quotas without being charged.
        has_bound = not in_full and bucket is not self._buckets.get((key, OTHERS))
        max_debt = self.max_debt_seconds if has_bound else MAX_SECONDS
        return bucket.use(amount, limit.rate, now, self.window, max_debt)

    def wait(self, key: QuotaKey, limit: Limit, now: float) -> float:
        """Return the seconds that the client must wait, without charging anything."""
        return self._bucket(key, limit, now).wait(now)

    @property
    def max_debt_seconds(self) -> float:
        """The longest wait in seconds for a bucket that clients share."""
        return MAX_DEBT_WINDOWS * self.window

    def in_a_window(self, limit: Limit) -> float:
        """Return the amount that a client may use immediately after a pause."""
        return limit.rate * self.window

    def _bucket(self, key: QuotaKey, limit: Limit, now: float) -> Bucket:
        bucket = self._buckets.get((key, limit.shared_by))
        if bucket is None:
            return self._new(key, limit, now)
        bucket.now_at(limit.rate, now)
        return bucket

    def _new(self, key: QuotaKey, limit: Limit, now: float) -> Bucket:
        if len(self._buckets) >= self._sweep_at and now - self._swept >= SWEEP_SECONDS:
            self._swept = now
            self._buckets = {k: bucket for k, bucket in self._buckets.items() if not bucket.is_as_new(now, self.window)}
            self._sweep_at = min(max(FEW_BUCKETS, 2 * len(self._buckets)), self._max_buckets)
        if len(self._buckets) >= self._max_buckets:
            # The entities that share this bucket may have different rates.
            return self._buckets.setdefault((key, OTHERS), Bucket())
        return self._buckets.setdefault((key, limit.shared_by), Bucket(limit.rate))
