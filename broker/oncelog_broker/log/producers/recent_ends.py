"""The ends of a log some time ago: nothing below them was written since. Pure.

The timestamps of records do not show which producers are silent, since producers choose them: one that copies old data
writes old timestamps, and a changed clock makes all of them old at once. A note for each producer is not needed either,
since its entry has the offset of its last batch.
"""

from __future__ import annotations

from typing import Final

ENDS: Final = 16
"""How many ends are noted, evenly over the time that is asked for. The fraction (1 / this) of the expiration time by
which a producer may be kept longer."""


class RecentEnds:
    """The recent end offsets of one log. Times are monotonic, in seconds."""

    __slots__ = ("_noted", "_old_end")

    def __init__(self, old_end: int = 0) -> None:
        """`old_end`: the log's end when it was opened. The time at which the records below it were written is
        unknown."""
        self._old_end = old_end
        self._noted: list[tuple[float, int]] = []
        """(when, log end), oldest first."""

    def look(self, log_end_offset: int, now: float, seconds: float) -> int:
        """Note the log's end. Returns an offset below which no record was written in the last `seconds`, as far as
        known. To be called periodically."""
        while self._noted and self._noted[0][0] <= now - seconds:
            _, self._old_end = self._noted.pop(0)
        last, last_end = self._noted[-1] if self._noted else (now - seconds, self._old_end)
        if log_end_offset != last_end and now - last >= seconds / ENDS:
            self._noted.append((now, log_end_offset))
        return self._old_end

    def cut(self, log_end_offset: int) -> None:
        """The log was truncated to this end offset."""
        self._old_end = min(self._old_end, log_end_offset)
        self._noted = [(when, min(end, log_end_offset)) for when, end in self._noted]
