"""Runs a part of the cluster's kill matrix: both brokers killed together, and a kill at a step of a follower; `make
kill-matrix-cluster` runs the entire matrix.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from cluster_matrix.cells import BROKER_POINTS, CLIENT, Cast, Cell, Victims, all_cells
from cluster_matrix.run import Outcome, run_cell
from cluster_matrix.stage import Stage
from cluster_matrix.table import count_wrong, page

BROKERS = (1, 2, 3)
SEEN_SECONDS = 2.0
"""Within this number of seconds, a client that has lost its connections requests metadata several times."""
CAST = Cast(coordinator=2, leader=1, group=3)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, chroots: Callable[[], str]) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("stage"), chroots()) as stage:
        yield stage


@pytest.mark.parametrize(
    "cell",
    [
        Cell("librdkafka", "after", "marker-written", Victims.BOTH),
        Cell("oncelog", "after", "marker-written", Victims.ALONE, aborts=True),
        Cell("oncelog", "after", "replicate", Victims.LEADER),
    ],
    ids=str,
)
def test_no_result_is_wrong_whichever_broker_dies(stage: Stage, cell: Cell) -> None:
    outcome = run_cell(stage, cell)
    assert not outcome.problems
    assert outcome.committed + outcome.aborted == 3
    assert outcome.committed >= 2


@pytest.mark.soak
def test_a_client_that_clings_to_its_groups_coordinator_is_told_from_a_broker_that_does_not_answer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's coordinator dies, too, is missing in the metadata until the client has seen that, and then returns;
    librdkafka waits for the handle of the coordinator that it has abandoned. If a newer librdkafka no longer waits for
    the abandoned handle, `clinging` can be removed.
    """
    start = stage.cluster.start

    def start_when_missed(*node_ids: int) -> None:
        (asked,) = set(BROKERS) - set(node_ids)
        stage.cluster.until(
            lambda: {broker.node_id for broker in stage.cluster.metadata(node_id=asked).brokers} == {asked},
            f"broker {asked} knows that it is alone",
        )
        time.sleep(SEEN_SECONDS)
        start(*node_ids)

    stage.tidy()
    monkeypatch.setattr(stage.cluster, "start", start_when_missed)
    monkeypatch.setattr("cluster_matrix.run.CLINGS_TO_COORDINATORS", set())
    outcome = run_cell(stage, Cell("librdkafka", "after", "acknowledge", Victims.BOTH))
    assert not outcome.problems
    assert outcome.clung
    assert (outcome.committed, outcome.aborted) == (2, 1)


def test_a_point_that_nobody_reaches_is_wrong(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of this test process does not stop at fail points. A busy machine may also be the reason that no
    process reaches the point, so the cell is repeated.
    """
    monkeypatch.setattr("cluster_matrix.run.STRUCK_SECONDS", 0.1)
    (problem,) = run_cell(stage, Cell("oncelog", "before", "send", Victims.LEADER)).problems
    assert problem.startswith("the point was not reached")


def test_every_point_strikes_a_dying_process_if_one_reaches_it() -> None:
    assert CLIENT not in BROKERS
    for cell in all_cells():
        asked, killed = set(CAST.asked(cell, BROKERS)), set(CAST.killed(cell))
        assert CLIENT not in killed
        assert asked
        if cell.point in ("append", "acknowledge", "marker-sent", "marker-written") or cell.victims is Victims.ALONE:
            assert asked <= killed
    assert {cell.point for cell in all_cells() if cell.library == "librdkafka"} == set(BROKER_POINTS)


def test_the_page_names_what_was_wrong() -> None:
    good = Cell("oncelog", "before", "append", Victims.LEADER)
    bad = good._replace(victims=Victims.BOTH)
    clinging = good._replace(victims=Victims.COORDINATOR)
    outcomes = {
        clinging: Outcome([], 2, 1, 5.0, clung=True),
        good: Outcome([], 3, 0, 4.0),
        bad: Outcome(["a record is lost"], 2, 1, 6.0),
    }
    assert count_wrong(outcomes.values()) == 1
    lines = list(page(outcomes))
    assert lines[0] == "3 runs, 1 of them wrong."
    assert "| before append | clings 2/1 | ok 3/0 | **wrong: 1** |" in lines
    assert lines[-1] == "1. a record is lost"
