"""Watching a query shows each batch once, although Spark repeats reports, even the last batches of a failing query."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from oncelog_pipeline.jobs.job import Job, Output, Transform, Trigger
from oncelog_pipeline.jobs.progress import Transactions
from oncelog_pipeline.jobs.watching import SHOWN, Lines, LiveTable, transactions_of, watch


def progress(batch: int, *, has_run: bool = True) -> dict[str, Any]:
    durations = {"addBatch": 1, "triggerExecution": 2} if has_run else {"triggerExecution": 2}
    return {"batchId": batch, "numInputRows": 5, "durationMs": durations, "sources": []}


class Query:
    """The successive states of Spark's StreamingQuery; at the end the query is done, or raises."""

    status = {"message": "Processing new data"}  # noqa: RUF012 - as Spark has it

    def __init__(self, looks: list[list[dict[str, Any]]], error: Exception | None = None) -> None:
        self._looks = looks
        self._error = error
        self.recentProgress: list[dict[str, Any]] = []

    def awaitTermination(self, timeout: float) -> bool:
        self.recentProgress = self._looks.pop(0)
        if not self._looks and self._error is not None:
            raise self._error
        return not self._looks


def watched(query: Query) -> list[list[str]]:
    lines: list[str] = []
    watch(query, Lines("plain", lines.append), lambda: Transactions(99))  # type: ignore[arg-type]
    return [line.split("\t") for line in lines]


def test_each_batch_is_shown_once() -> None:
    idle = progress(3, has_run=False)
    lines = watched(Query([[], [progress(1)], [progress(1), progress(2), idle], [idle, progress(3)]]))
    assert [line[0] for line in lines] == ["1", "2", "3"]
    assert {line[-1] for line in lines} == {"committed"}


def test_batches_before_a_failure_are_shown() -> None:
    lines: list[str] = []
    query = Query([[progress(1)], [progress(1), progress(2)]], RuntimeError("failed"))
    with pytest.raises(RuntimeError, match="failed"):
        watch(query, Lines("json", lines.append), lambda: None)  # type: ignore[arg-type]
    assert [json.loads(line)["batch"] for line in lines] == [1, 2]


def test_a_table_has_the_last_batches_and_what_goes_on() -> None:
    table = LiveTable("bills")
    query = Query([[progress(number) for number in range(SHOWN + 5)], []])
    watch(query, table, lambda: None)  # type: ignore[arg-type]
    drawn = Console(file=io.StringIO(), width=100)
    drawn.print(table.live.renderable)
    text = drawn.file.getvalue()  # type: ignore[attr-defined]
    assert "bills" in text
    assert "Processing new data" in text
    assert f" {SHOWN + 4} " in text
    assert " 4 " not in text


@pytest.mark.parametrize(
    "output",
    [
        Output({}, parquet="lake"),
        Output({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "delivery": "at-least-once"}),
    ],
)
def test_no_coordinator_is_asked_without_a_decision(output: Output) -> None:
    job = Job("bills", (), Transform(), output, "checkpoint", Trigger(), {}, "/")
    assert transactions_of(job, "id")() is None
