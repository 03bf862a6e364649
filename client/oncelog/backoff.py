"""Exponential backoff with jitter (KIP-144, KIP-580)."""

from __future__ import annotations

import random
from typing import Final

JITTER: Final = 0.2
MAX_DOUBLINGS: Final = 30
"""Maximum number of doublings: 2^30 ms are already twelve days, and without a limit the integers would grow with each
failure.
"""


def backoff_s(failures: int, first_ms: int, max_ms: int, rng: random.Random) -> float:
    """Return the seconds to wait after `failures` failures in a row. The wait is 0 without a failure; it doubles with
    each failure up to the maximum, and varies randomly by 20 %.
    """
    if failures <= 0:
        return 0.0
    delay_ms = min(max_ms, first_ms * (1 << min(failures - 1, MAX_DOUBLINGS)))
    return float(delay_ms) / 1000 * rng.uniform(1 - JITTER, 1 + JITTER)
