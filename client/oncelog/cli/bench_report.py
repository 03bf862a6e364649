"""The result of a benchmark: counts, rates, and the distribution of waits. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

STEPS_PER_DOUBLING: Final = 16
"""Number of histogram buckets for each doubling of the wait, which gives a resolution of about four percent."""
LEAST_SECONDS: Final = 1e-6
QUANTILES: Final = (0.5, 0.95, 0.99, 0.999)
BARS: Final = 12
BAR_WIDTH: Final = 40
MEGABYTE: Final = 1e6


class Waits:
    """A histogram of durations in seconds with growing buckets; its size does not depend on the number of values."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self.total_seconds = 0.0
        self.longest_seconds = 0.0

    def note(self, seconds: float) -> None:
        self._buckets[round(math.log2(max(seconds, LEAST_SECONDS)) * STEPS_PER_DOUBLING)] += 1
        self.count += 1
        self.total_seconds += seconds
        self.longest_seconds = max(self.longest_seconds, seconds)

    @property
    def mean_seconds(self) -> float:
        return self.total_seconds / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Return a duration in seconds: the fraction `share` (0 to 1) of the waits were at most as long. The result is
        accurate to one bucket of the histogram, and 0 if there are no waits.
        """
        left = math.ceil(share * self.count)
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return min(2 ** (bucket / STEPS_PER_DOUBLING), self.longest_seconds)
        return self.longest_seconds

    def bars(self) -> list[tuple[float, float, int]]:
        """Return a histogram of at most BARS bars; each bar is (from, to, number of waits), with from and to in
        seconds.
        """
        if not self._buckets:
            return []
        first, last = min(self._buckets), max(self._buckets)
        width = max(1, math.ceil((last - first + 1) / BARS))
        counts: Counter[int] = Counter()
        for bucket, count in self._buckets.items():
            counts[(bucket - first) // width] += count

        def edge(number: int) -> float:
            return float(2 ** ((first + number * width - 0.5) / STEPS_PER_DOUBLING))

        return [(edge(number), edge(number + 1), counts[number]) for number in range(max(counts) + 1)]


@dataclass(slots=True)
class Measured:
    """The results of one benchmark so far. `what` names the event whose wait is measured, such as "acknowledgement"."""

    unit: str
    """The unit that is counted, such as records or transactions."""
    what: str
    count: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    waits: Waits = field(default_factory=Waits)

    def line(self) -> str:
        """Return the progress line."""
        rate = self.count / self.seconds if self.seconds else 0.0
        text = f"{self.count:,} {self.unit}, {rate:,.0f}/s, {self.megabytes_per_second:.2f} MB/s"
        if self.waits.count:
            p50, p99 = self.waits.quantile(0.5), self.waits.quantile(0.99)
            text += f", {self.what}: half within {milliseconds(p50)}, 99 % within {milliseconds(p99)}"
        return text

    @property
    def megabytes_per_second(self) -> float:
        return self.size_bytes / self.seconds / MEGABYTE if self.seconds else 0.0

    def figures(self) -> list[tuple[str, float | int]]:
        """Return the name and the value of each figure; waiting times are in milliseconds."""
        figures: list[tuple[str, float | int]] = [
            (self.unit, self.count),
            ("seconds", round(self.seconds, 3)),
            (f"{self.unit}_per_second", round(self.count / self.seconds, 1) if self.seconds else 0.0),
            ("megabytes_per_second", round(self.megabytes_per_second, 3)),
        ]
        if self.waits.count:
            figures.append(("mean_ms", round(self.waits.mean_seconds * 1000, 3)))
            figures += [
                (f"p{f'{share * 100:g}'.replace('.', '')}_ms", round(self.waits.quantile(share) * 1000, 3))
                for share in QUANTILES
            ]
            figures.append(("max_ms", round(self.waits.longest_seconds * 1000, 3)))
        return figures

    def as_json(self) -> dict[str, Any]:
        histogram = [
            {"from_ms": round(low * 1000, 4), "to_ms": round(high * 1000, 4), "count": count}
            for low, high, count in self.waits.bars()
        ]
        return dict(self.figures()) | {"waits_for": self.what, "histogram": histogram}


def histogram_rows(waits: Waits) -> Sequence[tuple[str, int, str]]:
    """Return a row for each bar of the histogram: its range as text, its count, and the bar as text."""
    bars = waits.bars()
    most = max((count for _, _, count in bars), default=0)
    return [
        (f"{milliseconds(low)} to {milliseconds(high)}", count, "█" * math.ceil(BAR_WIDTH * count / most))
        for low, high, count in bars
    ]


def milliseconds(seconds: float) -> str:
    """Format seconds as milliseconds with three significant digits."""
    ms = seconds * 1000
    return f"{ms:.2f} ms" if ms < 10 else f"{ms:.1f} ms" if ms < 100 else f"{ms:,.0f} ms"
