"""The records of the state topic are encoded now and parsed by later runs."""

from __future__ import annotations

import json

import pytest

from oncelog.prepared_transaction import PreparedTransaction
from oncelog_pipeline.sink.digest import Digest
from oncelog_pipeline.sink.names import Query
from oncelog_pipeline.sink.state import (
    FORMER_RUNS,
    NO_BATCH,
    Place,
    State,
    TaskTransaction,
    UnreadableState,
    Written,
    state_from_json,
)

QUERY = Query("3f0c")
WRITTEN = Written(PreparedTransaction(QUERY.task_id("run-one-of-many", 7, 2, 1), 4000, 3, True), Place("out", 1, 99))
STATE = State(
    "run-two",
    7,
    (TaskTransaction(WRITTEN, 2, Digest(3, 2**63)),),
    {0: Digest(1, 9), 1: None},
    ("run-one-",),
    Digest(5, 12),
    may_differ=True,
)
OLD = {"version": 1, "run": "r", "batch": 4, "txns": [], "lost": [2], "former": []}
"""A state record that the first release wrote."""


def test_the_json_of_a_state_is_what_the_documentation_says() -> None:
    assert json.loads(STATE.as_json()) == {
        "version": 1,
        "run": "run-two",
        "batch": 7,
        "txns": [
            {
                "id": "oncelog-spark-3f0c/run-one-/2/1/3",
                "pid": 4000,
                "epoch": 3,
                "v2": True,
                "part": 2,
                "at": ["out", 1, 99],
                "digest": [3, 2**63],
            }
        ],
        "lost": [0, 1],
        "former": ["run-one-"],
        "digest": [5, 12],
        "lost_digests": [[0, 1, 9]],
        "may_differ": True,
    }
    assert state_from_json(STATE.as_json()) == STATE
    assert state_from_json(State("r").as_json()) == State("r", NO_BATCH)


def test_a_state_of_the_first_release_is_read_and_written_unchanged() -> None:
    state = State("r", 4, lost={2: None})
    assert state_from_json(json.dumps(OLD).encode()) == state
    assert json.loads(state.as_json()) == OLD


@pytest.mark.parametrize(
    "value", [b"", b"null", b"[]", b"{}", b"\xff", STATE.as_json()[:-1], STATE.as_json().replace(b'"pid"', b'"pod"')]
)
def test_a_malformed_state_is_refused(value: bytes) -> None:
    with pytest.raises(UnreadableState, match="no state of a query"):
        state_from_json(value)


def test_a_newer_version_is_not_guessed_at() -> None:
    with pytest.raises(UnreadableState, match="has version 2"):
        state_from_json(STATE.as_json().replace(b'"version":1', b'"version":2'))


def test_a_bounded_number_of_latest_runs_is_remembered() -> None:
    state = State("run-00000")
    for number in range(1, FORMER_RUNS + 5):
        state = state.taken_over(f"{number:08d}", ())
    assert state.former[:2] == (f"{FORMER_RUNS + 3:08d}", f"{FORMER_RUNS + 2:08d}")
    assert len(state.former) == FORMER_RUNS


def test_a_run_knows_its_tasks_and_no_others() -> None:
    """Ids of a query with a longer name, of the query itself, and of a partition are not ids of its tasks."""
    assert QUERY.run_of(QUERY.task_id("run-one-of-many", 7, 2, 1)) == "run-one-"
    assert QUERY.run_of(QUERY.task_id("run-one-of-many", 7, 2, 1) + "/88") == "run-one-"
    for other in (QUERY.id, QUERY.partition_id(2), Query("3f0c-1").task_id("run", 0, 0, 0), "elsewhere/run/0/0/0"):
        assert QUERY.run_of(other) is None


@pytest.mark.parametrize("name", ["", "a/b", "a b", "é", "x" * 201])
def test_a_name_that_could_be_taken_for_anothers_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="letters, digits, dots"):
        Query(name)
