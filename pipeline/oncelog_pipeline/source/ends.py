"""The ends of a stream's partitions, kept for as long as an idle query can do with.

Spark asks a query without new records again and again where its partitions end. Each look costs CPU in proportion to
their number. So the answer is kept until brokers tell that there is more (`watch.py`), and then asked for at once.

Where they cannot tell, the answer is kept for a pause, which begins with FRESH_SECONDS and doubles while nothing
changes, up to what makes the looks IDLE_SHARE of a core; the first change brings it back. Where they do, the pause
doubles up to LONGEST_SECONDS, in case a connection is lost without a word. Most looks by the clock ask for the ends
alone, one request to each leader; topics and beginnings are asked for where an end has changed, and each
FULL_SECONDS, which is how late new partitions may be noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from oncelog import TopicPartition
from oncelog.errors import KafkaError
from oncelog_pipeline.source.offsets import Offsets
from oncelog_pipeline.source.progress import Log

FRESH_SECONDS: Final = 0.1
"""The shortest pause."""
LONGEST_SECONDS: Final = 5.0
"""The longest one: how late new records may be noticed at most, however many partitions there are."""
FULL_SECONDS: Final = 5.0
IDLE_SHARE: Final = 0.01
"""Of a core."""


class Ends:
    """`look` asks for everything, `look_at_ends` for the ends of these partitions; both may raise KafkaError. `clock`
    and `cpu_clock` return seconds; the latter, those of CPU that the process has used. `is_watched`: whether brokers
    will tell of new records."""

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
        """The pause with which looks take IDLE_SHARE of a core."""
        self._is_due = False

    @property
    def last(self) -> Log | None:
        """What was found last; None before the first look."""
        return self._log

    @property
    def are_dear(self) -> bool:
        """Whether a look costs so much CPU that one each FRESH_SECONDS would be more than IDLE_SHARE of a core."""
        return self._affordable > FRESH_SECONDS

    def forget(self) -> None:
        """The next `log` asks for everything."""
        self._log = None

    def hurry(self) -> None:
        """The next `log` asks for everything, though the pause may not be over: there are new records."""
        self._is_due = True

    def log(self) -> Log:
        """Raises KafkaError."""
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
                latest = {}  # a topic may be gone: the full look tells
            if latest == self._log.latest:
                return self._log
        self._looked_fully = now
        return self._look()
