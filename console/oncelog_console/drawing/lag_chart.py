"""The lag of a group over time, as points of a line in a box of 1000 by 100 units."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog_console.drawing.scale import Scale, Tick, age_ticks

WIDTH: Final = 1000
HEIGHT: Final = 100
TICKS: Final = 6
LEAST_MS: Final = 60_000
SPARK_POINTS: Final = 60
"""Maximum points of a sparkline: a table has hundreds of sparklines, each with an hour of samples."""
HEADROOM: Final = 1.3
"""Height of the box as a multiple of the highest point, which leaves room for a label."""


@dataclass(frozen=True, slots=True)
class LagChart:
    """`lines`: the points of each period in which the lag was known throughout; `areas`: the same lines, closed at the
    bottom.
    """

    lines: tuple[str, ...]
    areas: tuple[str, ...]
    most: int
    ticks: tuple[Tick, ...]


def spark(points: Iterable[tuple[int, int | None]], now_ms: int) -> LagChart:
    """Return the sparkline of a table row. If there are many points, the older ones are divided into fewer than
    SPARK_POINTS groups of neighbouring points. The line has the maximum of each group, and at its end the newest point.
    """
    *older, newest = known = [*points] or [(now_ms, None)]
    many = -(-len(known) // SPARK_POINTS)
    runs = (older[start : start + many] for start in range(0, len(older), many))
    return lag_chart([*(max(run, key=_height) for run in runs), newest], now_ms)


def _height(point: tuple[int, int | None]) -> int:
    return -1 if point[1] is None else point[1]


def lag_chart(points: Sequence[tuple[int, int | None]], now_ms: int) -> LagChart:
    """`points`: pairs of time in ms and lag in records, the oldest first; a lag of None interrupts the line."""
    most = max((lag for _, lag in points if lag is not None), default=0)
    span = max(LEAST_MS, now_ms - points[0][0] if points else 0)
    across, up = Scale(now_ms - span, now_ms), Scale(0, max(1, most) * HEADROOM)
    stretches: list[list[tuple[float, float]]] = [[]]
    for at_ms, lag in points:
        if lag is None:
            stretches.append([])
        else:
            stretches[-1].append((across.at(at_ms) * WIDTH / 100, HEIGHT - up.at(lag) * HEIGHT / 100))
    known = [stretch for stretch in stretches if stretch]
    return LagChart(
        tuple(_points(stretch) for stretch in known),
        tuple(_points([(stretch[0][0], HEIGHT), *stretch, (stretch[-1][0], HEIGHT)]) for stretch in known),
        most,
        age_ticks(across, now_ms, span, TICKS),
    )


def _points(stretch: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in stretch)
