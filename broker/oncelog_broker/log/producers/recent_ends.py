"""Where a log ended some time ago: what lies below was not written since. Pure.

Who has been silent cannot be told by the timestamps of records: they are the producers' own. One that copies what is
years old writes old ones all the time, and a clock that is set makes all of them old at once. Nor does it need a note
for each producer: that knows the offset of what it wrote last.
"""

from __future__ import annotations

from typing import Final

ENDS: Final = 16
"""So many are noted, evenly, for the time that is asked about: by so much of it a producer is known for longer."""


class RecentEnds:
    """Of one log. Times are monotonic, in seconds."""

    __slots__ = ("_noted", "_old_end")

    def __init__(self, old_end: int = 0) -> None:
        """When what lies below `old_end` was written is not known: it was there when the log was opened."""
        self._old_end = old_end
        self._noted: list[tuple[float, int]] = []
        """(when, log end), oldest first."""

    def look(self, log_end_offset: int, now: float, seconds: float) -> int:
        """The log ends there now; an offset below which nothing was written in the last `seconds`, as far as is known.
        To be asked from time to time."""
        while self._noted and self._noted[0][0] <= now - seconds:
            _, self._old_end = self._noted.pop(0)
        last, last_end = self._noted[-1] if self._noted else (now - seconds, self._old_end)
        if log_end_offset != last_end and now - last >= seconds / ENDS:
            self._noted.append((now, log_end_offset))
        return self._old_end

    def cut(self, log_end_offset: int) -> None:
        """The log was cut, and ends there now."""
        self._old_end = min(self._old_end, log_end_offset)
        self._noted = [(when, min(end, log_end_offset)) for when, end in self._noted]
