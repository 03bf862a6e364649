"""Caches the ends of a stream's partitions while its query is idle.

While there are no new records, Spark asks the source again and again where its partitions end. Each *look*, which
requests the ends from the brokers, costs CPU in proportion to the number of partitions. This module therefore caches
the ends until `watch.py` reports new records.

After a pause, a look also replaces the cached ends without such a report. The pause begins at FRESH_SECONDS, doubles
while the ends do not change, and is reset to FRESH_SECONDS when they change. While brokers are watched, the pause grows
up to LONGEST_SECONDS, in case a connection is lost unnoticed; without a watch it grows only until the looks use at most
IDLE_SHARE of a CPU core. Most looks request only the ends, with one request to each leader. If an end has changed, a
look also requests the topics and the beginnings of the partitions. It also does this when FULL_SECONDS have passed, so
that new partitions are found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from oncelog import TopicPartition
from oncelog.errors import KafkaError
from oncelog_pipeline.source.offsets import Offsets
from oncelog_pipeline.source.progress import Log

FRESH_SECONDS: Final = 0.1
"""The shortest pause in seconds between two looks, which request the ends of partitions from the brokers."""
LONGEST_SECONDS: Final = 5.0
"""The longest pause in seconds between two looks. New records are noticed after at most this time, however many
partitions there are.
"""
FULL_SECONDS: Final = 5.0
"""At most this many seconds pass until a look requests not only the ends, but also the topics and the beginnings of the
partitions.
"""
IDLE_SHARE: Final = 0.01
"""The largest share of a CPU core that looks may use while the query is idle and no Fetch waits at the brokers for new
records.
"""


class Ends:
    """The cached end offsets of the partitions that a stream reads. `look` requests everything, `look_at_ends` only the
    ends of the given partitions; both may raise
    KafkaError.

    `clock` returns seconds, `cpu_clock` the CPU seconds that the process has used. `is_watched` returns whether brokers
    will report new records.
    """

    def __init__(
        self,
        look: Callable[[], Log],
        look_at_ends: Callable[[Collection[TopicPartition]], Offsets],
        clock: Callable[[], float],
        cpu_clock: Callable[[], float],
        is_watched: Callable[[], bool] = lambda: False,
    ) -> None:
        self._look = look
        self._look_at_ends = look_at_ends
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._is_watched = is_watched
        self._log: Log | None = None
        self._looked = 0.0
        self._looked_fully = 0.0
        self._pause = FRESH_SECONDS
        self._affordable = FRESH_SECONDS
        """The shortest pause in seconds between two looks that keeps their CPU time within IDLE_SHARE."""
        self._is_due = False

    @property
    def last(self) -> Log | None:
        """The result of the last request of the ends; None before the first request."""
        return self._log

    @property
    def are_dear(self) -> bool:
        """Return whether requesting the ends is expensive: one request every FRESH_SECONDS would use more than
        IDLE_SHARE of a CPU core.
        """
        return self._affordable > FRESH_SECONDS

    def forget(self) -> None:
        """Drop the cached ends, so that the next call of `log` requests everything."""
        self._log = None

    def hurry(self) -> None:
        """Make the next call of `log` request everything immediately, because new records are known to exist."""
        self._is_due = True

    def log(self) -> Log:
        """Return the topics, beginnings and ends, either cached or newly requested. Raises KafkaError."""
        now = self._clock()
        if self._log is not None and not self._is_due and now - self._looked < self._pause:
            return self._log
        cpu_before = self._cpu_clock()
        before, self._log = self._log, self._look_again(now)
        self._is_due = False
        self._affordable = (self._cpu_clock() - cpu_before) / IDLE_SHARE
        if before is None or before.latest != self._log.latest:
            self._pause = FRESH_SECONDS
        else:
            most = LONGEST_SECONDS if self._is_watched() else max(FRESH_SECONDS, self._affordable)
            self._pause = min(2 * self._pause, most, LONGEST_SECONDS)
        self._looked = self._clock()
        return self._log

    def _look_again(self, now: float) -> Log:
        if self._log is not None and not self._is_due and now - self._looked_fully < FULL_SECONDS:
            try:
                latest = self._look_at_ends(self._log.latest)
            except KafkaError:
                latest = {}  # a topic may have been deleted: request topics, beginnings and ends to find out
            if latest == self._log.latest:
                return self._log
        self._looked_fully = now
        return self._look()
