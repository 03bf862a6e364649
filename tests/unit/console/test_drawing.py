"""Tests the positions of lines in the console's charts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncelog_console.drawing.bars import NOW_AT, Span, timeline
from oncelog_console.drawing.lag_chart import SPARK_POINTS, lag_chart, spark
from oncelog_console.drawing.log_picture import Drawn, log_picture
from oncelog_console.drawing.scale import Scale, age_label, ages, round_ticks
from oncelog_console.limits import LANES

NOW = 1_800_000_000_000
MINUTE = 60_000


def batch(first: int, last: int, producer: int, kind: str = "data") -> Drawn:
    return Drawn(first, last, producer, kind, "committed", "")


def test_a_scale_keeps_to_its_picture() -> None:
    scale = Scale(100, 300)
    assert [scale.at(value) for value in (0, 100, 200, 300, 999)] == [0, 0, 50, 100, 100]
    assert Scale(5, 5).at(5) == 0


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(2, 12))
def test_ticks_are_round_few_and_inside(low: int, span: int, most: int) -> None:
    ticks = round_ticks(low, low + span, most)
    assert len(ticks) <= most
    assert all(low <= tick <= low + span for tick in ticks)


@given(st.integers(0, 400 * 86_400_000))
def test_ages_are_shown_by_a_few_colours(span: int) -> None:
    found = ages(span, 6)
    assert found[0] == 0
    assert len(found) <= 7
    assert all(age_label(age) for age in found)


def test_bars_begin_with_their_transactions_and_go_on_to_their_end() -> None:
    drawn = timeline([Span(NOW - 4 * MINUTE, NOW + MINUTE, False), Span(NOW - 2 * MINUTE, None, True)], NOW)
    old, new = drawn.bars
    assert drawn.now_x == NOW_AT * 100
    assert old.x < new.x
    assert abs(old.x + old.width - drawn.now_x) < 0.01
    assert (old.rest > 0, new.rest, new.hangs) == (True, 0, True)


def test_a_transaction_hanging_for_years_does_not_squeeze_the_others() -> None:
    drawn = timeline([Span(0, None, True), Span(None, None, True), Span(NOW - MINUTE, None, False)], NOW)
    ancient, unknown, recent = drawn.bars
    assert (ancient.is_older, unknown.is_older, recent.is_older) == (True, True, False)
    assert ancient.x == 0
    assert recent.width > 50


def test_a_clock_that_runs_ahead_is_drawn_at_now() -> None:
    (bar,) = timeline([Span(NOW + MINUTE, None, False)], NOW).bars
    assert bar.width > 0
    assert bar.x <= NOW_AT * 100


def test_each_producer_has_a_line_and_a_colour_and_the_last_is_for_the_rest() -> None:
    few = log_picture([batch(0, 4, 7), batch(5, 5, 7, "commit"), batch(6, 9, -1)], 0, 10, 10, 10)
    assert [(lane.producer_id, lane.colour) for lane in few.lanes] == [(7, 0), (None, None)]
    assert [box.kind for box in few.boxes] == ["data", "commit", "data"]
    many = log_picture([batch(n, n, n) for n in range(50)], 0, 50, 50, 50)
    assert len(many.lanes) == LANES
    assert many.lanes[-1].others == 50 - LANES + 1
    assert len(many.boxes) == 50


def test_lines_stand_where_the_ends_are() -> None:
    held = log_picture([batch(0, 99, 1)], 0, 100, 40, 100)
    assert held.last_stable is not None
    assert held.high_watermark is not None
    assert (held.last_stable.x, held.high_watermark.x, held.held_back_x) == (40, 100, 40)
    free = log_picture([batch(0, 99, 1)], 0, 100, 100, 100)
    assert (free.last_stable, free.held_back_x) == (None, None)
    before = log_picture([batch(0, 99, 1)], 0, 100, 400, 500)
    assert (before.last_stable, before.high_watermark, before.held_back_x) == (None, None, None)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 50), st.integers(-1, 20)), max_size=60))
def test_boxes_stay_within_the_picture(raw: list[tuple[int, int, int]]) -> None:
    picture = log_picture([batch(first, first + more, producer) for first, more, producer in raw], 0, 500, 9, 500)
    assert all(0 <= box.x <= 100 and box.width > 0 and 0 < box.y < picture.base for box in picture.boxes)


def test_a_gap_breaks_the_line_of_a_lag() -> None:
    points = [(NOW - 3 * MINUTE, 10), (NOW - 2 * MINUTE, None), (NOW - MINUTE, 20), (NOW, 0)]
    chart = lag_chart(points, NOW)
    assert (len(chart.lines), chart.most) == (2, 20)
    assert chart.lines[1].endswith("1000.0,100.0")
    assert lag_chart([], NOW).lines == ()


def test_a_row_shows_the_highest_values_in_few_points() -> None:
    points = [(NOW - age * 5_000, 1_000 if age == 300 else age % 7) for age in range(720, -1, -1)]
    chart = spark(points, NOW)
    assert len(chart.lines[0].split()) <= SPARK_POINTS + 1
    assert chart.most == 1_000
    assert chart.lines[0].split()[-1].startswith("1000.0,"), "the newest is there"
    assert [spark(few, NOW).lines for few in ([], points[:3])] == [(), lag_chart(points[:3], NOW).lines]
