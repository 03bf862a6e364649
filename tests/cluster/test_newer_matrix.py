"""Runs a part of the kill matrix of the newer protocols, with each kind of work and each broker that is killed; `make
kill-matrix-cluster` runs the entire matrix.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_matrix.newer import HEAD, stored, with_newer_tables
from cluster_matrix.newer_cells import (
    CONSUMER,
    SHARES,
    STREAMS,
    TITLES,
    TWO_PHASE,
    Kill,
    NewerCell,
    NewerOutcome,
    all_newer_cells,
    count_wrong,
    tables,
)
from cluster_matrix.newer_run import NewerStage

from oncelog_broker.fail_control.catalogue import CATALOGUE


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewerStage]:
    with NewerStage(tmp_path_factory.mktemp("newer")) as stage:
        yield stage


@pytest.mark.parametrize(
    "cell",
    [
        NewerCell(CONSUMER, "offsets-written", True, Kill.EXECUTING),
        NewerCell(STREAMS, "marker-written", False, Kill.COORDINATOR),
        NewerCell(TWO_PHASE, "prepare-logged", True, Kill.CONTROLLER),
        NewerCell(SHARES, "WriteShareGroupState.answer", False, Kill.EXECUTING),
        pytest.param(NewerCell(STREAMS, "StreamsGroupHeartbeat.answer", False, Kill.EXECUTING), marks=pytest.mark.soak),
        pytest.param(NewerCell(STREAMS, "append", True, Kill.EXECUTING), marks=pytest.mark.soak),
        pytest.param(NewerCell(TWO_PHASE, "marker-written", False, Kill.EXECUTING), marks=pytest.mark.soak),
        pytest.param(NewerCell(SHARES, "ShareFetch.request", False, Kill.CONTROLLER), marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_no_result_is_wrong_whichever_broker_dies(stage: NewerStage, cell: NewerCell) -> None:
    outcome = stage.run(cell)
    assert outcome.problems == []
    assert int(outcome.what.partition("/")[0]) >= (12 if cell.work == SHARES else 4)


def test_each_cell_has_a_point_of_the_brokers_and_a_role() -> None:
    cells = all_newer_cells()
    assert len(set(cells)) == len(cells)
    assert {cell.work for cell in cells} == TITLES.keys()
    assert all(cell.point in CATALOGUE and cell.role for cell in cells)
    assert all(CATALOGUE[cell.point].has_after for cell in cells if cell.is_after)
    assert not any(
        "group coordinator" in cell.role for cell in cells if cell.kill is Kill.COORDINATOR and cell.work != SHARES
    )


def test_the_tables_name_what_was_wrong_and_replace_earlier_ones() -> None:
    good = NewerCell(CONSUMER, "append", True, Kill.EXECUTING)
    bad = good._replace(kill=Kill.CONTROLLER)
    other = NewerCell(STREAMS, "EndTxn.answer", False, Kill.CONTROLLER)
    outcomes = {
        good: NewerOutcome([], "4/1", 1.0),
        bad: NewerOutcome(["input 3\n0 times"], "3/0", 1.0),
        other: NewerOutcome([], "4/0", 1.0),
    }
    assert count_wrong(outcomes.values()) == 1
    lines = list(tables(outcomes))
    assert lines[0] == "3 runs, 1 of them wrong."
    assert "| after append | leader of a partition | ok 4/1 |  | **wrong: 1** |" in lines
    assert "| EndTxn.answer | transaction coordinator |  |  | ok 4/0 |" in lines
    assert lines[-1] == "1. input 3 0 times"
    page = with_newer_tables("# Kill matrix\n\nother tables\n", ["old"])
    assert with_newer_tables(page, ["new"]) == f"# Kill matrix\n\nother tables\n\n{HEAD}\nnew\n"


def test_the_last_outcome_of_a_cell_counts(tmp_path: Path) -> None:
    cell = NewerCell(CONSUMER, "append", True, Kill.EXECUTING)
    results = tmp_path / "results.jsonl"
    assert stored(results) == {}
    outcomes = [NewerOutcome(["torn"], "3/0", 1.0), NewerOutcome([], "4/0", 2.0)]
    results.write_text("".join(json.dumps([cell, outcome]) + "\n" for outcome in outcomes))
    assert stored(results) == {cell: outcomes[-1]}
