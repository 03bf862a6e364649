"""Runs a part of the kill matrix on three brokers: coordinator, leaders and groups are in different processes, and the
process that reaches the chosen fail point dies. `python -m kill_matrix --cluster` runs a larger part, and `make
kill-matrix-cluster` the matrix with replicas.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from kill_matrix.cells import Cell, Fault, Moment
from kill_matrix.cluster_stage import ClusterStage
from kill_matrix.questions import Hit
from kill_matrix.run import run_cell

STRIKES = [
    (Fault.BROKER_KILLED, "after", "register-partitions", 2),
    (Fault.BROKER_KILLED, "after", "append", 1),
    (Fault.BROKER_KILLED, "after", "prepare-logged", 1),
    (Fault.BROKER_KILLED, "after", "marker-written", 2),
    (Fault.BROKER_KILLED, "before", "complete-logged", 1),
    (Fault.CONNECTION_CUT, "after", "marker-written", 1),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory, chroots: Callable[[], str]) -> AsyncIterator[ClusterStage]:
    async with ClusterStage(tmp_path_factory.mktemp("stage"), chroots()) as made:
        yield made


@pytest.mark.crossed("library", "strike")
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("library", ["aiokafka", "oncelog"])
@pytest.mark.parametrize("strike", STRIKES, ids=lambda strike: " ".join(map(str, strike)))
async def test_each_input_is_processed_exactly_once_and_no_transaction_is_torn(
    stage: ClusterStage, library: str, strike: tuple[Fault, str, str, int]
) -> None:
    fault, when, point, nth = strike
    outcome = await run_cell(stage, Cell(library, Moment(Hit(when, point), nth), fault))
    assert outcome.problems == []
    assert outcome.committed == 4
