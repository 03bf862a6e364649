"""Runs a part of the kill matrix of share groups, with each kind of fault and each kind of broker; `make kill-matrix`
runs the entire matrix.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kill_matrix.share_cells import MATRIX_FAULTS, POINTS, ShareCell, ShareFault, ShareOutcome, all_share_cells, table
from kill_matrix.share_run import RECORDS, ShareStage
from kill_matrix.shares import HEAD, with_share_table

from oncelog_broker.fail_control.catalogue import CATALOGUE


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShareStage]:
    with ShareStage(tmp_path_factory.mktemp("shares")) as stage:
        yield stage


@pytest.mark.parametrize(
    "cell",
    [
        ShareCell("WriteShareGroupState.answer", ShareFault.BROKER_KILLED),
        ShareCell("ShareFetch.answer", ShareFault.MEMBER_KILLED),
        pytest.param(ShareCell("ShareAcknowledge.answer", ShareFault.DROPPED), marks=pytest.mark.soak),
        pytest.param(ShareCell("ShareGroupHeartbeat.request", ShareFault.DELAYED), marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_no_record_is_lost_or_delivered_after_it_was_accepted(stage: ShareStage, cell: ShareCell) -> None:
    outcome = stage.run(cell)
    assert outcome.problems == []
    assert outcome.deliveries >= RECORDS


def test_each_cell_has_a_point_of_the_brokers() -> None:
    assert tuple(point for point in POINTS if point in CATALOGUE) == POINTS
    assert len(all_share_cells()) == len(POINTS) * len(MATRIX_FAULTS)


def test_the_table_names_what_was_wrong_and_replaces_an_earlier_one() -> None:
    good = ShareCell("ShareFetch.request", ShareFault.DROPPED)
    bad = good._replace(fault=ShareFault.DELAYED)
    lines = list(table({good: ShareOutcome([], 12, 1.0), bad: ShareOutcome(["a record is lost"], 11, 1.0)}))
    assert lines[0] == "2 runs, 1 of them wrong."
    assert "| ShareFetch.request | leader of the share partition |  |  | **wrong: 1** | ok 12 |" in lines
    assert lines[-1] == "1. a record is lost"
    page = with_share_table("# Kill matrix\n\nother tables\n", ["old"])
    assert with_share_table(page, ["new"]) == f"# Kill matrix\n\nother tables\n\n{HEAD}\nnew\n"
