"""Keeps the log end offsets of the recent past, which show how long ago the records below them were written.

The timestamps of records do not show when the records were written, because producers choose the timestamps. A producer
that copies old data writes old timestamps, and after a change of the wall clock all timestamps may seem old. The broker
also
stores no time for each producer: the offset of the producer's last batch, compared with these log ends, shows when the
batch was written.
"""

from __future__ import annotations

from typing import Final

ENDS: Final = 16
"""The number of log ends that are kept, distributed evenly over the requested time. A producer may therefore expire
later than configured, by up to 1 / ENDS of the expiration time.
"""


class RecentEnds:
    """Recent end offsets of one log, with the times when they were noted. Times are monotonic, in seconds."""

    __slots__ = ("_noted", "_old_end")

    def __init__(self, old_end: int = 0) -> None:
        """The argument `old_end` is the log end offset when the log was opened. The time when the records below
        `old_end` were
        written is unknown.
        """
        self._old_end = old_end
        self._noted: list[tuple[float, int]] = []
        """(time in monotonic seconds, log end offset), oldest first."""

    def look(self, log_end_offset: int, now: float, seconds: float) -> int:
        """Remember the current log end. Returns an offset below which, as far as known, no record was written in the
        last `seconds`. This method must be called periodically.
        """
        while self._noted and self._noted[0][0] <= now - seconds:
            _, self._old_end = self._noted.pop(0)
        last, last_end = self._noted[-1] if self._noted else (now - seconds, self._old_end)
        if log_end_offset != last_end and now - last >= seconds / ENDS:
            self._noted.append((now, log_end_offset))
        return self._old_end

    def cut(self, log_end_offset: int) -> None:
        """Lower the stored log ends after the log was truncated to this end offset."""
        self._old_end = min(self._old_end, log_end_offset)
        self._noted = [(when, min(end, log_end_offset)) for when, end in self._noted]
