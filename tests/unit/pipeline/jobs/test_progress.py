"""A batch is reported in one line, from Spark's progress report, even if parts of the report are missing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oncelog_pipeline.jobs.progress import HEADINGS, BatchRow, Transactions, row_of, total_line
from oncelog_pipeline.source.lag import lag_of

PROGRESS: dict[str, Any] = {
    "id": "9a0c",
    "runId": "17b2",
    "name": "bills",
    "timestamp": "2026-11-22T10:00:00.123Z",
    "batchId": 7,
    "batchDuration": 1500,
    "numInputRows": 3000,
    "inputRowsPerSecond": 100.0,
    "processedRowsPerSecond": 2000.4,
    "durationMs": {"triggerExecution": 1500},
    "sources": [
        {
            "description": "oncelog",
            "startOffset": {"orders": {"0": 0, "1": 0}},
            "endOffset": {"orders": {"0": 100, "1": 200}, "_from": {"orders": {"0": 0, "1": 0}}},
            "latestOffset": {"orders": {"0": 150, "1": 200, "2": 5}},
        }
    ],
    "sink": {"description": "oncelog"},
}


def test_a_batch_is_shown() -> None:
    row = row_of(PROGRESS, Transactions(7, 0))
    assert row == BatchRow(7, "2026-11-22 10:00:00", 3000, 2000.4, 55, 1.5, "committed")
    assert row.cells() == ("7", "2026-11-22 10:00:00", "3000", "2000", "55", "1.5", "committed")
    assert len(row.cells()) == len(HEADINGS)
    assert json.loads(row.as_json())["lag"] == 55


def test_offsets_may_be_texts() -> None:
    """Some versions of Spark report the offsets of a Python source as text."""
    (source,) = PROGRESS["sources"]
    texts = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in source.items()}
    assert lag_of([texts]) == 55
    assert lag_of([texts, source]) == 110


@pytest.mark.parametrize(
    "source", [{}, {"endOffset": None, "latestOffset": 5}, {"endOffset": "x", "latestOffset": "7"}]
)
def test_a_source_without_offsets_has_no_lag(source: dict[str, Any]) -> None:
    assert lag_of([source]) is None


@pytest.mark.parametrize(
    ("rows", "transactions", "said"),
    [
        (10, Transactions(7), "committed"),
        (10, Transactions(8), "committed"),
        (10, Transactions(7, 3), "committed, 3 of the next batch open"),
        (0, Transactions(6), "nothing to commit"),
        (10, Transactions(6), "no rows written"),
        (10, None, None),
    ],
)
def test_the_state_of_the_transaction_is_shown(rows: int, transactions: Transactions | None, said: str | None) -> None:
    assert row_of(PROGRESS | {"numInputRows": rows}, transactions).transaction == said


@pytest.mark.parametrize("rate", [float("nan"), "Infinity", None])
def test_a_missing_rate_is_not_shown(rate: Any) -> None:
    bare = {"batchId": 0, "processedRowsPerSecond": rate, "durationMs": {"triggerExecution": 20}}
    assert row_of(bare).cells() == ("0", "", "0", "0", "-", "0.0", "-")


def test_the_end_of_a_query_is_shown() -> None:
    row = row_of(PROGRESS)
    assert total_line([row, row]) == "2 batches, 6000 rows, 2000 rows/s"
    assert total_line([row]) == "1 batch, 3000 rows, 2000 rows/s"
    assert total_line([]) == "0 batches, 0 rows"
