"""Limits the log lines about a full or failing disk: one line when a failure begins, lines with a count periodically,
and one line when the failure is over. Without this limit, each append, checkpoint and fetch of each partition would log
a line.

A trouble is one kind of work that fails with one error in one data directory. A trouble is over when the failure has
not happened for QUIET_SECONDS.
"""

from __future__ import annotations

import errno
import logging
import threading
from typing import Final, TypeGuard

from oncelog_broker.runtime.clock import Clock, SystemClock
from oncelog_protocol.light_classes import NamedTuple

logger = logging.getLogger(__name__)

QUIET_SECONDS: Final = 30.0
"""Seconds without the failure after which the trouble is over."""
COUNT_SECONDS: Final = 60.0
"""Seconds between two log lines with the count of a continuing trouble."""

KNOWN_ERRORS: Final = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENODEV,
        errno.ENOSPC,
        errno.ENXIO,
        errno.EPERM,
        errno.EROFS,
        errno.ESTALE,
    }
)
"""Errors of a disk that is full, failing, missing or owned by other users, or of a system limit; they are logged
without a stack trace.
"""


def is_known_disk_error(error: BaseException | None) -> TypeGuard[OSError]:
    """Whether the error is one of KNOWN_ERRORS."""
    return isinstance(error, OSError) and error.errno in KNOWN_ERRORS


class _Key(NamedTuple):
    directory: str
    what: str
    errno: int | None


class _Trouble:
    """One trouble (a repeated disk failure): its start in monotonic seconds, the number of failures, and the time of
    its last log line.
    """

    __slots__ = ("began", "count", "last", "reason", "told")

    def __init__(self, now: float, reason: str) -> None:
        self.began = self.last = self.told = now
        self.count = 1
        self.reason = reason


class DiskTroubles:
    """All troubles of a process; any thread may use this class. `report` must be called periodically."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._troubles: dict[_Key, _Trouble] = {}

    def begin_anew(self, clock: Clock) -> None:
        """Delete all troubles, and use this clock from now on; a simulation calls this method before each run."""
        with self._guard:
            self._clock = clock
            self._troubles.clear()

    def note_failure(self, directory: str, what: str, error: BaseException) -> bool:
        """Record that the action `what` failed in a data directory. Returns whether the caller must log the failure:
        True if the same failure has not happened within QUIET_SECONDS, and for every error that is not a known disk
        error.
        """
        if not is_known_disk_error(error):
            return True
        now, key = self._clock.monotonic(), _Key(directory, what, error.errno)
        with self._guard:
            known = self._troubles.get(key)
            if known is None or now - known.last > QUIET_SECONDS:
                self._troubles[key] = _Trouble(now, error.strerror or str(error))
                return True
            known.last = now
            known.count += 1
            return False

    def report(self) -> None:
        """Log the continuing troubles with their counts, and the troubles that are over."""
        now = self._clock.monotonic()
        with self._guard:
            over = {key: each for key, each in self._troubles.items() if now - each.last > QUIET_SECONDS}
            for key in over:
                del self._troubles[key]
            counted = {key: each for key, each in self._troubles.items() if now - each.told >= COUNT_SECONDS}
            for each in counted.values():
                each.told = now
        for key, each in counted.items():
            logger.error("a disk keeps failing", extra=_extra(key, each, now - each.began))
        for key, each in over.items():
            logger.warning("a disk works again", extra=_extra(key, each, each.last - each.began))


def _extra(key: _Key, trouble: _Trouble, seconds: float) -> dict[str, object]:
    return {
        "directory": key.directory,
        "failed_to": key.what,
        "reason": trouble.reason,
        "times": trouble.count,
        "seconds": round(seconds),
    }


DISK_TROUBLES: Final = DiskTroubles(SystemClock())
"""The troubles (repeated disk failures) of this process."""
