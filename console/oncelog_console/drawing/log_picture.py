"""The picture of a log: offsets run to the right, and each producer has a lane with a box for each of its batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from oncelog_console.drawing.scale import Scale, Tick, round_ticks
from oncelog_console.limits import LANES

COLOURS: Final = 8
LANE_HEIGHT: Final = 26
BOX_HEIGHT: Final = 18
TOP: Final = 48
BOTTOM: Final = 26
TICKS: Final = 8
LEAST_WIDTH: Final = 0.35
GAP: Final = 0.12
"""Percent of the width between two boxes, if there is room."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A batch to draw: its first and last offset, and its producer id (-1 if it has none). `kind` is "data", "commit",
    "abort" or "control".
    """

    first: int
    last: int
    producer_id: int
    kind: str
    fate: str
    title: str


@dataclass(frozen=True, slots=True)
class Box:
    """`x` and `width` are in percent, `y` is in pixels. `colour` is the index of a colour in the style sheet, from 0
    on; `fate` is the batch's outcome, such as "committed", as a class name for the style sheet.
    """

    x: float
    width: float
    y: int
    colour: int | None
    kind: str
    fate: str
    title: str
    first: int


@dataclass(frozen=True, slots=True)
class Lane:
    """A horizontal lane of the picture with the batches of one producer; a `producer_id` of None means records without
    a producer id; `others`: the number of further
    producers that share the lane.
    """

    producer_id: int | None
    y: int
    colour: int | None
    others: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line in the picture that marks an offset, such as the last stable offset. `anchor` is the alignment of
    its label at `x`: "start", "middle" or "end".
    """

    x: float
    label: str
    anchor: str


@dataclass(frozen=True, slots=True)
class LogPicture:
    boxes: tuple[Box, ...]
    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    last_stable: Mark | None
    high_watermark: Mark | None
    held_back_x: float | None
    """Position of the last stable offset in percent, from which on read_committed consumers see no records; None if no
    part of the picture is beyond it.
    """
    height: int
    base: int


def log_picture(batches: Sequence[Drawn], start: int, end: int, last_stable: int, high_watermark: int) -> LogPicture:
    """Draw the offsets from `start` to `end`. Marks at other offsets are not drawn."""
    end = max(end, start + 1)
    scale = Scale(start, end)
    lanes, lane_of = _lanes(batches)
    boxes = tuple(_box(batch, scale, lane_of[batch.producer_id]) for batch in batches)
    ticks = tuple(Tick(scale.at(offset), str(offset)) for offset in round_ticks(start, end, TICKS))
    stable = _mark(scale, start, end, last_stable, "last stable offset")
    high = _mark(scale, start, end, high_watermark, "high watermark")
    is_held_back = last_stable < high_watermark and last_stable < end
    base = TOP + LANE_HEIGHT * max(1, len(lanes))
    return LogPicture(
        boxes,
        lanes,
        ticks,
        stable if last_stable < high_watermark else None,
        high,
        scale.at(last_stable) if is_held_back else None,
        base + BOTTOM,
        base,
    )


def _lanes(batches: Sequence[Drawn]) -> tuple[tuple[Lane, ...], dict[int, Lane]]:
    """Return the lanes: producers with the most records have their own lanes, in order of appearance; the last lane is
    for all others.
    """
    counts = Counter(batch.producer_id for batch in batches)
    own = {producer for producer, _ in counts.most_common(LANES if len(counts) <= LANES else LANES - 1)}
    lanes: list[Lane] = []
    lane_of: dict[int, Lane] = {}
    for producer in dict.fromkeys(batch.producer_id for batch in batches):
        if producer in own:
            colour = None if producer < 0 else sum(lane.colour is not None for lane in lanes) % COLOURS
            lane = Lane(None if producer < 0 else producer, TOP + LANE_HEIGHT * len(lanes), colour)
            lanes.append(lane)
            lane_of[producer] = lane
    others = [producer for producer in counts if producer not in own]
    if others:
        lane = Lane(None, TOP + LANE_HEIGHT * len(lanes), None, len(others))
        lanes.append(lane)
        lane_of.update(dict.fromkeys(others, lane))
    return tuple(lanes), lane_of


def _box(batch: Drawn, scale: Scale, lane: Lane) -> Box:
    x = scale.at(batch.first)
    width = scale.at(batch.last + 1) - x
    width = max(LEAST_WIDTH, width - GAP if width > 4 * GAP else width)
    y = lane.y + (LANE_HEIGHT - BOX_HEIGHT) // 2
    return Box(x, round(width, 3), y, lane.colour, batch.kind, batch.fate, batch.title, batch.first)


def _mark(scale: Scale, start: int, end: int, offset: int, name: str) -> Mark | None:
    if not start <= offset <= end:
        return None
    x = scale.at(offset)
    return Mark(x, f"{name} {offset}", "start" if x < 30 else "end")
