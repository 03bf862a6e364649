"""The wall clock that stamps records. All waiting uses the event loop's monotonic time."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
