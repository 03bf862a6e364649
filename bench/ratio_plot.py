"""Draws ratios as an SVG: one bar for each measurement, on a logarithmic scale, with a line at 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

ROW, LEFT, WIDTH, TOP = 24, 430, 420, 64
LOWEST: Final = 0.125
HIGHEST: Final = 8.0
GOOD, BAD = "#2a7f62", "#b5533c"


class Bar(NamedTuple):
    """The ratio of our number to the peer's: the median, the 10th and the 90th percentile. `is_better`: whether a
    larger ratio is better.
    """

    what: str
    ratio: float
    low: float
    high: float
    is_better: bool


def plot(title: str, bars: Sequence[Bar]) -> str:
    """Return the picture as SVG."""
    height = TOP + ROW * len(bars) + 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 90}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="100%" height="100%" fill="white"/><text x="10" y="24" font-size="16">{escape(title)}</text>',
        '<text x="10" y="44" fill="#555">Bars: median of the ratios; thin lines: 10th to 90th percentile; '
        "green: better than the peer, red: worse.</text>",
    ]
    for mark in (0.125, 0.25, 0.5, 1, 2, 4, 8):
        x = _x(mark)
        lines.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - 30}" '
            f'stroke="{"#000" if mark == 1 else "#ddd"}"/>'
            f'<text x="{x:.1f}" y="{height - 12}" text-anchor="middle" fill="#555">{mark:g}</text>'
        )
    for number, bar in enumerate(bars):
        lines += _bar(bar, TOP + ROW * number)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _bar(bar: Bar, y: int) -> list[str]:
    start, end = sorted((_x(1.0), _x(bar.ratio)))
    color = GOOD if (bar.ratio > 1) == bar.is_better else BAD
    middle = y + ROW / 2
    return [
        f'<text x="{LEFT - 10}" y="{middle + 4}" text-anchor="end">{escape(bar.what)}</text>',
        f'<rect x="{start:.1f}" y="{y + 5}" width="{max(end - start, 1):.1f}" height="{ROW - 10}" fill="{color}"/>',
        f'<line x1="{_x(bar.low):.1f}" x2="{_x(bar.high):.1f}" y1="{middle}" y2="{middle}" stroke="#222"/>',
        f'<text x="{LEFT + WIDTH + 10}" y="{middle + 4}">{bar.ratio:.2f}</text>',
    ]


def _x(ratio: float) -> float:
    """Return the horizontal position of a ratio; ratios outside the scale are drawn at its ends."""
    shown = min(max(ratio, LOWEST), HIGHEST)
    return LEFT + WIDTH * math.log(shown / LOWEST) / math.log(HIGHEST / LOWEST)
