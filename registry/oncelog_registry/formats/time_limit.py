"""The time limit of a comparison of two schemas: a thread cannot be stopped from outside, so the comparison itself
checks the time.
"""

from __future__ import annotations

import time

from oncelog_registry.limits import CHECK_SECONDS


class TimeLimit:
    """The time limit of one comparison; the time starts when this object is created."""

    def __init__(self) -> None:
        self._end = time.monotonic() + CHECK_SECONDS

    def check(self) -> None:
        """Check the time. Raises ValueError if CHECK_SECONDS have passed."""
        if time.monotonic() > self._end:
            raise ValueError(f"the schemas were not compared in {CHECK_SECONDS:.0f} s: they are too large")
