"""The states of records are stored as runs of consecutive offsets with the same state."""

from __future__ import annotations

from oncelog_broker.coordinator.share.state_batches import DeliveryState
from oncelog_broker.sharing.record_runs import RecordRuns, Run

AVAILABLE, ACKNOWLEDGED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED


def runs_from(start: int, *lengths: int) -> RecordRuns:
    """Return runs of these lengths, where each run was delivered once more often than the previous one."""
    runs = RecordRuns(start)
    for deliveries, length in enumerate(lengths):
        runs.append(Run(runs.end, runs.end + length - 1, AVAILABLE, deliveries))
    return runs


def shown(runs: RecordRuns) -> list[tuple[int, int, int]]:
    return [(run.first, run.last, run.deliveries) for run in runs.runs]


def test_a_cut_divides_the_runs_that_reach_beyond_it() -> None:
    runs = runs_from(10, 5, 5, 5)
    assert [(run.first, run.last) for run in runs.cut(12, 21)] == [(12, 14), (15, 19), (20, 21)]
    assert shown(runs) == [(10, 11, 0), (12, 14, 0), (15, 19, 1), (20, 21, 2), (22, 24, 2)]


def test_a_cut_beyond_the_ends_takes_what_there_is() -> None:
    runs = runs_from(10, 5)
    assert [(run.first, run.last) for run in runs.cut(0, 100)] == [(10, 14)]
    assert runs.cut(15, 20) == []


def test_neighbours_that_are_alike_are_joined() -> None:
    runs = runs_from(0, 4, 4)
    runs.cut(2, 2)
    runs.join()
    assert shown(runs) == [(0, 3, 0), (4, 7, 1)]


def test_the_start_moves_beyond_what_is_done_and_no_further() -> None:
    runs = runs_from(0, 2, 2, 2)
    runs.runs[0].settle(ACKNOWLEDGED)
    runs.runs[2].settle(ACKNOWLEDGED)
    runs.advance()
    assert (runs.start, shown(runs)) == (2, [(2, 3, 1), (4, 5, 2)])
    runs.runs[0].settle(ACKNOWLEDGED)
    runs.advance()
    assert (runs.start, runs.end, runs.runs) == (6, 6, [])


def test_what_is_below_a_new_start_is_forgotten() -> None:
    runs = runs_from(0, 4, 4)
    runs.begin_at(6)
    assert (runs.start, shown(runs)) == (6, [(6, 7, 1)])
    runs.begin_at(20)
    assert (runs.start, runs.end, runs.runs) == (20, 20, [])
    runs.begin_at(3)
    assert runs.start == 20


def test_offsets_beyond_a_new_end_are_forgotten() -> None:
    runs = runs_from(10, 4, 4)
    runs.end_at(20)
    assert runs.end == 18
    runs.end_at(12)
    assert (runs.end, shown(runs)) == (12, [(10, 11, 0)])
    runs.end_at(5)
    assert (runs.start, runs.end, runs.runs) == (5, 5, [])


def test_runs_are_divided_at_many_offsets_in_one_pass() -> None:
    runs = runs_from(10, 4, 4)
    runs.divide_at([3, 10, 11, 11, 13, 14, 16, 18, 30])
    assert shown(runs) == [(10, 10, 0), (11, 12, 0), (13, 13, 0), (14, 15, 1), (16, 17, 1)]
    assert runs.end == 18
