"""Runs a part of the kill matrix (each run has one fault at one point of a transaction), with each kind of fault, in
the broker and in the client; `make kill-matrix` runs the entire matrix.

The tests also check that a run with missing or duplicate records in its output counts as failed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from kill_matrix.cells import Cell, Fault, Moment
from kill_matrix.questions import Hit
from kill_matrix.run import run_cell
from kill_matrix.stage import Stage
from kill_matrix.streams_worker import Claim, claim_problems
from kill_matrix.verdict import problems_of
from kill_matrix.worker import Output

from oncelog.prepared_transaction import FIRST_INIT_WITH_TWO_PHASE_COMMIT
from oncelog_protocol.api import ApiKey

# Every second strike is tried with aiokafka. Clients are killed in the others: aiokafka has a long session timeout
# (`worker.run_aiokafka`), so a killed member delays its group for that long.
STRIKES = [
    (Fault.BROKER_KILLED, "after", "append", 1),
    (Fault.BROKER_KILLED, "after", "prepare-logged", 1),
    (Fault.BROKER_KILLED, "after", "marker-written", 2),
    (Fault.CLIENT_KILLED, "after", "offsets-written", 1),
    (Fault.CONNECTION_CUT, "before", "register-partitions", 1),
    (Fault.CLIENT_KILLED, "before", "prepare-logged", 1),
    (Fault.REPLY_LOST, "before", "acknowledge", 1),
    (Fault.REPLY_LOST, "before", "reply-sent", 1),
    (Fault.REQUEST_DUPLICATED, "before", "append", 2),
    (Fault.REQUEST_DUPLICATED, "before", "prepare-logged", 1),
]


NEWER_STRIKES = [
    (Fault.BROKER_KILLED, "after", "prepare-logged"),
    (Fault.CLIENT_KILLED, "before", "prepare-logged"),
    (Fault.CLIENT_KILLED, "after", "offsets-written"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with Stage(tmp_path_factory.mktemp("stage")) as made:
        yield made


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.crossed("library", "strike")
@pytest.mark.parametrize("library", ["aiokafka", "oncelog"])
@pytest.mark.parametrize("strike", STRIKES, ids=lambda strike: " ".join(map(str, strike)))
async def test_each_input_is_processed_exactly_once_and_no_transaction_is_torn(
    stage: Stage, library: str, strike: tuple[Fault, str, str, int]
) -> None:
    fault, when, point, nth = strike
    outcome = await run_cell(stage, Cell(library, Moment(Hit(when, point), nth), fault))
    assert outcome.problems == []
    assert outcome.committed == 4


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.crossed("library", "strike")
@pytest.mark.parametrize(
    ("library", "api", "version"),
    [
        ("oncelog-consumer", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1),
        ("oncelog-2pc", ApiKey.INIT_PRODUCER_ID, FIRST_INIT_WITH_TWO_PHASE_COMMIT),
        ("oncelog-streams", ApiKey.STREAMS_GROUP_HEARTBEAT, 0),
    ],
)
@pytest.mark.parametrize("strike", NEWER_STRIKES, ids=lambda strike: " ".join(map(str, strike)))
async def test_each_input_is_processed_exactly_once_with_the_newer_protocols(
    stage: Stage, library: str, api: ApiKey, version: int, strike: tuple[Fault, str, str]
) -> None:
    """The program must really use the protocol that its table names, which its requests show."""
    stage.proxy.versions.clear()
    fault, when, point = strike
    outcome = await run_cell(stage, Cell(library, Moment(Hit(when, point)), fault))
    assert outcome.problems == []
    assert outcome.committed == 4
    assert stage.proxy.versions[api] == version


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("fault", [Fault.BROKER_KILLED, Fault.CLIENT_KILLED])
async def test_inputs_are_processed_exactly_once_when_the_client_stops_at_the_point(stage: Stage, fault: Fault) -> None:
    outcome = await run_cell(stage, Cell("oncelog", Moment(Hit("after", "send")), fault, aborts=True))
    assert outcome.problems == []
    assert outcome.aborted >= 1


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("library", "is_v1"), [("aiokafka", True), ("oncelog", False), ("oncelog-v1", True)])
async def test_each_library_has_the_transactions_that_its_table_names(stage: Stage, library: str, is_v1: bool) -> None:
    """A client sends AddPartitionsToTxn itself only before V2."""
    stage.proxy.versions.clear()
    outcome = await run_cell(stage, Cell(library, Moment(Hit("before", "reply-sent")), Fault.CONNECTION_CUT))
    assert outcome.problems == []
    assert (ApiKey.ADD_PARTITIONS_TO_TXN in stage.proxy.versions) == is_v1


WHOLE = [Output("a", 2, "0"), Output("a", 2, "1"), Output("b", 1, "2")]


@pytest.mark.parametrize(
    ("seen", "problems"),
    [
        (WHOLE, []),
        (WHOLE[:2], ["input 2 0 times"]),
        (WHOLE[1:], ["input 0 0 times", "transaction a is torn: 1 of 2 records"]),
        ([*WHOLE, Output("c", 1, "2")], ["input 2 2 times"]),
        ([*WHOLE, WHOLE[0]], ["input 0 2 times", "transaction a is torn: 3 of 2 records"]),
        ([*WHOLE, Output("c", 1, "3")], ["unknown input 3"]),
    ],
)
def test_wrong_results_are_noticed(seen: list[Output], problems: list[str]) -> None:
    assert problems_of(seen, seen, 3) == problems


def test_records_missing_from_the_log_are_noticed() -> None:
    (problem,) = problems_of(WHOLE, WHOLE[:2], 3)
    assert problem.startswith("read, but not in the log")


@pytest.mark.parametrize(
    ("claims", "problems"),
    [
        ([], []),
        ([Claim(0, 1, "a"), Claim(1, 1, "b"), Claim(0, 1, "a"), Claim(0, 2, "b")], []),
        (
            [Claim(0, 1, "a"), Claim(1, 2, "a"), Claim(1, 2, "b"), Claim(0, 2, "b")],
            ["task 1 has 2 members in epoch 2"],
        ),
        ([Claim(0, 1, "a"), Claim(1, 1, "a")], ["only 1 member has got tasks"]),
    ],
)
def test_two_members_with_one_task_are_noticed(claims: list[Claim], problems: list[str]) -> None:
    assert claim_problems(claims) == problems
