"""Draws open transactions as bars: from the transaction's start to now, and from now to the time at which its
coordinator will abort it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from oncelog_console.drawing.scale import Scale, Tick, age_ticks

LEAST_MS: Final = 10_000
"""Minimum length of the time axis, in ms."""
MOST_MS: Final = 3600 * 1000
"""Maximum length of the time axis before now, in ms: an older transaction's bar is cut at the left, because a longer
axis would shrink all other bars.
"""
NOW_AT: Final = 0.8
"""The position of now as a fraction of the width; times after now are to the right of this position."""
TICKS: Final = 6


@dataclass(frozen=True, slots=True)
class Span:
    """The times of a transaction that a bar shows: its start and the latest time of its abort, in ms since the epoch;
    None if unknown.
    """

    since_ms: int | None
    ends_by_ms: int | None
    hangs: bool


@dataclass(frozen=True, slots=True)
class Bar:
    """The bar of a transaction, with all positions in percent of the picture's width. `rest` is the width from now to
    the latest time at which the transaction is aborted; `is_older`: the transaction began before the left end of the
    axis.
    """

    x: float
    width: float
    rest: float
    is_older: bool
    hangs: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    now_x: float


def timeline(spans: Sequence[Span], now_ms: int) -> Timeline:
    """Return one bar for each of the transactions `spans`, in the same order."""
    ages_ms = [now_ms - span.since_ms for span in spans if span.since_ms is not None]
    past = max([LEAST_MS, *(age * 21 // 20 for age in ages_ms if age <= MOST_MS)])
    scale = Scale(now_ms - past, now_ms - past + past / NOW_AT)
    now_x = scale.at(now_ms)
    bars = []
    for span in spans:
        since = now_ms - past if span.since_ms is None else min(span.since_ms, now_ms)
        x = scale.at(since)
        rest = 0.0 if span.ends_by_ms is None else max(0.0, scale.at(span.ends_by_ms) - now_x)
        is_older = span.since_ms is None or span.since_ms < now_ms - past
        bars.append(Bar(x, round(max(0.3, now_x - x), 3), round(rest, 3), is_older, span.hangs))
    return Timeline(tuple(bars), age_ticks(scale, now_ms, past, TICKS), now_x)
