"""An axis: computes positions of values in percent, and round values for grid lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

ROUND: Final = (1, 2, 5)
DAY_MS: Final = 86_400_000
TIME_STEPS: Final = tuple(
    1000 * s for s in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
)


class Tick(NamedTuple):
    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis on which the value `low` is at 0 % of the width, and `high` at 100 %."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Return the position of a value in percent, limited to 0 and 100."""
        if self.high <= self.low:
            return 0.0
        return round(min(100.0, max(0.0, (value - self.low) * 100 / (self.high - self.low))), 3)


def round_ticks(low: int, high: int, most: int) -> list[int]:
    """Return at most `most` round numbers from `low` to `high`, both included."""
    step, power = 1, 0
    while (high - low) / step + 1 > most:
        power += 1
        step = ROUND[power % 3] * 10 ** (power // 3)
    first = -(-low // step) * step
    return list(range(first, high + 1, step))


def ages(span_ms: int, most: int) -> list[int]:
    """Return round ages in ms, starting with 0, up to `span_ms`."""
    step = next((each for each in TIME_STEPS if span_ms / each < most), None)
    if step is None:
        step = -(-span_ms // (most * DAY_MS)) * DAY_MS
    return list(range(0, span_ms + 1, step))


def age_ticks(scale: Scale, now_ms: int, span_ms: int, most: int) -> tuple[Tick, ...]:
    """Return the positions of grid lines for round ages (such as 5 min ago) on a time axis that begins `span_ms` before
    now.
    """
    return tuple(Tick(scale.at(now_ms - age), age_label(age)) for age in ages(span_ms, most))


def age_label(age_ms: int) -> str:
    """Return an age as text: `3 min`, `1 h 30 min`."""
    seconds = age_ms // 1000
    if seconds == 0:
        return "now"
    if seconds < 60:
        return f"−{seconds} s"
    if seconds < 3600:
        return f"−{seconds // 60} min" + (f" {seconds % 60} s" if seconds % 60 else "")
    if seconds < 86_400:
        return f"−{seconds // 3600} h" + (f" {seconds % 3600 // 60} min" if seconds % 3600 else "")
    return f"−{seconds // 86_400} d"
